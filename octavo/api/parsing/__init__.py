"""From a model's raw text to reasoning, content and tool calls."""
