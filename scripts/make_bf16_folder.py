"""Writes a GGUF file's weights and tokenizer as a folder of bfloat16 safetensors.

Other engines read it where they read no GGUF. Needs torch, transformers, accelerate and gguf; the
environment that scripts/build-peers.sh makes for openvino has them:

    python scripts/make_bf16_folder.py MODEL.gguf FOLDER
"""

import json
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
    # the class that a GGUF file of architecture llama is taken for splits text in its own way; this
    # one takes tokenizer.json as it is
    config = temporary / "tokenizer_config.json"
    known = json.loads(config.read_text())
    kept = {key: known[key] for key in ("bos_token", "eos_token") if key in known}
    config.write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **kept}))
    temporary.rename(folder)  # whole or not at all


if __name__ == "__main__":
    main()
