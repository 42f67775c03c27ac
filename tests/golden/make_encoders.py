"""Makes tests/golden/encoders/: tiny random BERT checkpoints, one folder each, with the embeddings that transformers gives of texts.

    python -m venv v && v/bin/pip install torch==2.11.0 transformers==5.23.0 && v/bin/python tests/golden/make_encoders.py

config.json, model.safetensors  as transformers' save_pretrained writes them
tokenizer.json                  that of tests/golden/tokenizers/bert, or of xlm-roberta
expected.json                   by text {"text", "tokens", "truncated", "embedding"}: in fp32 the mean over the tokens, divided by its length,
                                as sentence-transformers' modules Transformer, Pooling and Normalize give it

Arguments are the names of the encoders to make, where not all are wanted.
"""
import json
import pathlib
import shutil
import sys

import tokenizers
import torch
import transformers

from strings import strings

HERE = pathlib.Path(__file__).parent
OUT = HERE / "encoders"
SIZES = dict(vocab_size=520, hidden_size=30, num_attention_heads=3, intermediate_size=50, num_hidden_layers=2, max_position_embeddings=80,
             attn_implementation="eager")
SENTENCES = ["", "The file was deleted.", "Somebody removed the file.", "It rains in Paris, and the trains are late!",
             "def value(self):\n    return self.name + 1", "Café ☕ 中文 naïve", "one two three four five six seven eight nine ten " * 12]
# The sentence files of sentence-transformers, cutting texts at 70 tokens.
SENTENCE_FILES = {
    "modules.json": [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
                     for i, (path, kind) in enumerate([("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")])],
    "1_Pooling/config.json": dict(word_embedding_dimension=30, pooling_mode_cls_token=False, pooling_mode_mean_tokens=True,
                                  pooling_mode_max_tokens=False, pooling_mode_mean_sqrt_len_tokens=False),
    "sentence_bert_config.json": dict(max_seq_length=70, do_lower_case=False),
}
# Heads of ten; heads wider than a panel of 64, one segment, names behind "bert.", in bf16; BERT with pieces of Unigram, as multilingual-e5-small.
ENCODERS = {
    "sentences": (transformers.BertModel, SIZES, torch.float32, SENTENCE_FILES, "bert"),
    "masked-lm": (transformers.BertForMaskedLM, SIZES | dict(num_hidden_layers=1, hidden_size=132, num_attention_heads=2, type_vocab_size=1, layer_norm_eps=1e-5),
                  torch.bfloat16, {}, "bert"),
    "unigram": (transformers.BertModel, SIZES | dict(vocab_size=180), torch.float32, SENTENCE_FILES, "xlm-roberta"),
}


def make_lively(model, dtype):
    """Weights large enough that every part matters, norms that are not one; all exact in `dtype`."""
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape)
        if "LayerNorm.weight" in name:
            values = 1 + 0.2 * noise
        elif name.endswith("bias"):
            values = 0.3 * noise
        else:
            values = noise if "embeddings" in name else noise / parameter.shape[-1] ** 0.5
        parameter.data = values.to(dtype).float()


@torch.no_grad()
def embedding(model, tokens):
    hidden = model.base_model(input_ids=torch.tensor([tokens]), attention_mask=torch.ones(1, len(tokens), dtype=torch.long)).last_hidden_state[0]
    return torch.nn.functional.normalize(hidden.mean(0), dim=0).tolist()


def main():
    for name, (kind, sizes, dtype, files, tokenizer) in ENCODERS.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        tokenizer = HERE / "tokenizers" / tokenizer / "tokenizer.json"
        torch.manual_seed(sum(map(ord, name)))
        folder = OUT / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        model = kind(transformers.BertConfig(**sizes)).eval()
        make_lively(model, dtype)
        model.to(dtype).save_pretrained(folder)
        model.float()
        for path, content in files.items():
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(json.dumps(content) + "\n")
        shutil.copy(tokenizer, folder)
        longest = files.get("sentence_bert_config.json", {}).get("max_seq_length", sizes["max_position_embeddings"])
        whole = tokenizers.Tokenizer.from_file(str(tokenizer))
        cut = tokenizers.Tokenizer.from_file(str(tokenizer))
        cut.enable_truncation(longest)
        cases = []
        for text in [*SENTENCES, *strings(12, name)]:
            tokens = cut.encode(text).ids
            cases.append({"text": text, "tokens": tokens, "truncated": len(whole.encode(text).ids) > longest,
                          "embedding": [round(x, 8) for x in embedding(model, tokens)]})
        (folder / "expected.json").write_text(json.dumps(cases) + "\n")


if __name__ == "__main__":
    main()
