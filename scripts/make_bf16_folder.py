"""Writes a GGUF file's weights and tokenizer as a folder of bfloat16 safetensors.

Other engines read it where they read no GGUF. Needs torch, transformers, accelerate and gguf (scripts/build-peers.sh has an environment with them):

    python scripts/make_bf16_folder.py MODEL.gguf FOLDER
"""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main() -> None:
    """The command line."""
    source, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    place = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    model = AutoModelForCausalLM.from_pretrained(**place, dtype=torch.bfloat16)
    model.generation_config.cache_implementation = None
    temporary = folder.with_suffix(".part")
    model.save_pretrained(temporary)
    AutoTokenizer.from_pretrained(**place).save_pretrained(temporary)
    temporary.rename(folder)  # whole or not at all


if __name__ == "__main__":
    main()
