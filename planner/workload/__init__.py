"""What a training step computes, moves and stores: FLOPs and bytes, no seconds."""
