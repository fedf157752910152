"""What each way of computing a model costs in fidelity: perplexity, greedy agreement, divergence.

    python -m benchmarks.fidelity --help

Uses Octavo as its users do, through `LLM`. Never imported by the package.
"""
