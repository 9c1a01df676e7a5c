"""Facts as data files with source and date: GPUs, nodes, models, prices, software."""

from planner.catalog.errors import CatalogError
from planner.catalog.gpus import gpu, gpus
from planner.catalog.models import model, models, published_params
from planner.catalog.nodes import node, nodes

__all__ = ["CatalogError", "gpu", "gpus", "model", "models", "node", "nodes", "published_params"]
