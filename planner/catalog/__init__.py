"""Facts as data files with source and date: GPUs, nodes, models, prices, software."""

from planner.catalog.errors import CatalogError
from planner.catalog.gpus import gpu, gpus
from planner.catalog.models import model, models, published_params
from planner.catalog.nodes import node, nodes
from planner.catalog.prices import prices, rental_price
from planner.catalog.purchase import PurchasePrice, purchase_prices

__all__ = [
    "CatalogError",
    "PurchasePrice",
    "gpu",
    "gpus",
    "model",
    "models",
    "node",
    "nodes",
    "prices",
    "published_params",
    "purchase_prices",
    "rental_price",
]
