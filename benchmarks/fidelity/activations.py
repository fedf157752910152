"""Where rounding activations to 8 bits hurts: the layers, or the output head?

    python -m benchmarks.fidelity.activations [MODEL] [--tokens 1000]

Everything is fp32 in PyTorch but for the inputs of linear layers, which are rounded as the native
kernels round them (groups of 32, the largest value is 127), in one plane or in two (the second
holds what the first left over).

Knows nothing of: the native kernels.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from unittest.mock import patch

import numpy as np
import torch

from benchmarks.fidelity.corpus import TEXT_PATH
from benchmarks.fidelity.routes import Route, open_llm
from octavo import LLM, SamplingParams
from octavo.envs import read_environ
from octavo.ops.interface import Tensor, Weight
from octavo.ops.torch import TorchOps
from octavo.outputs import PositionLogprobs
from octavo.weights.hub import hub_settings, locate

GROUP = 32
READ = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=2)

Rounding = Callable[[torch.Tensor], torch.Tensor]


def exact(x: torch.Tensor) -> torch.Tensor:
    """Not rounded."""
    return x


def one_plane(x: torch.Tensor) -> torch.Tensor:
    """[..., K] rounded to 8 bits in groups along K."""
    groups = x.unflatten(-1, (-1, GROUP))
    scale = groups.abs().amax(-1, keepdim=True) / 127
    codes = torch.round(groups / torch.where(scale > 0, scale, torch.ones_like(scale)))
    return (codes * scale).flatten(-2)


def two_planes(x: torch.Tensor) -> torch.Tensor:
    """The same, and its remainder in another 8 bits."""
    first = one_plane(x)
    return first + one_plane(x - first)


CASES: dict[str, tuple[Rounding, Rounding]] = {
    "layers and head in 8 bits": (one_plane, one_plane),
    "layers only": (one_plane, exact),
    "head only": (exact, one_plane),
    "layers in 8 bits, head in two planes": (one_plane, two_planes),
}


def read(llm: LLM, ids: list[int], layers: Rounding, head: Rounding) -> list[PositionLogprobs]:
    """What a prompt's tokens and favourites are given, with these roundings."""
    linear = TorchOps.linear

    def rounded(ops: TorchOps, x: Tensor, weight: Weight, bias: Weight | None = None) -> Tensor:
        assert isinstance(x, torch.Tensor)
        return linear(ops, layers(x), weight, bias)

    def rounded_head(ops: TorchOps, x: Tensor, weight: Weight) -> Tensor:
        assert isinstance(x, torch.Tensor)
        return linear(ops, head(x), weight)

    with patch.object(TorchOps, "linear", rounded), patch.object(TorchOps, "lm_head", rounded_head):
        (output,) = llm.generate([ids], READ, use_tqdm=True)
    assert output.prompt_logprobs is not None
    return [entry for entry in output.prompt_logprobs if entry is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", help="GGUF file (default: the default model)")
    parser.add_argument("--tokens", type=int, default=1000)
    args = parser.parse_args()
    model = args.model or locate(None, hub_settings(read_environ()))
    limits = {"max_model_len": args.tokens + 1, "max_num_seqs": 1, "max_num_batched_tokens": 256}
    with open_llm(model, Route("torch", "float32"), **limits) as llm:
        ids = llm.get_tokenizer().encode(TEXT_PATH.read_text())[: args.tokens]
        reference = read(llm, ids, exact, exact)
        favourites = [_favourite(entry) for entry in reference]
        for name, roundings in CASES.items():
            found = read(llm, ids, *roundings)
            noise = np.array(
                [
                    entry[token].logprob - exactly[token].logprob
                    for token, entry, exactly in zip(ids[1:], found, reference, strict=True)
                ]
            )
            same = np.mean([_favourite(e) == f for e, f in zip(found, favourites, strict=True)])
            print(f"{name}: noise {np.sqrt((noise**2).mean()):.4f}, same favourite {same:.2%}")


def _favourite(entry: PositionLogprobs) -> int:
    return max(entry, key=lambda token_id: entry[token_id].logprob)


if __name__ == "__main__":
    main()
