"""One device: weights, KV tensors, model runner."""
