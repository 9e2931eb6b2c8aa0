# SPDX-License-Identifier: Apache-2.0
"""vLLM by --load-format unshard: the tokens that it gives from merged safetensors; its
weights from a DCP of the same model, whole and by slices, one rank and two."""
import json
import os
import subprocess
import sys
import tempfile

from kit import TOP, case, need

need("torch", "transformers", "vllm")

SETTINGS = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "WARNING",
            "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1"}
SERVE = """
import json, sys
def main():
    from vllm import LLM, SamplingParams
    llm = LLM(sys.argv[1], skip_tokenizer_init=True, dtype="bfloat16", enforce_eager=True,
              max_model_len=64, **json.loads(sys.argv[2]))
    prompts = [{"prompt_token_ids": p} for p in ([1, 5, 9, 2, 77], [3, 200, 41])]
    out = llm.generate(prompts, SamplingParams(temperature=0, max_tokens=12, detokenize=False))
    print("TOKENS", json.dumps([list(o.outputs[0].token_ids) for o in out]), flush=True)
if __name__ == "__main__":
    main()
"""


def make(tmp):
    """A Llama of random weights: merged for vLLM's own loader, a DCP, a bare config."""
    import torch
    import torch.distributed.checkpoint as dcp
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=256, hidden_size=128, intermediate_size=256,
                         num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                         max_position_embeddings=64, initializer_range=0.4)
    model = LlamaForCausalLM(config).bfloat16()
    model.save_pretrained(tmp + "/merged")
    dcp.save({"model": model.state_dict(), "step": 3}, checkpoint_id=tmp + "/dcp", no_dist=True)
    model.config.save_pretrained(tmp + "/config")


def tokens(tmp, where, **settings):
    script = os.path.join(tmp, "serve.py")
    with open(script, "w") as f:
        f.write(SERVE)
    bound = {"VLLM_CPU_OMP_THREADS_BIND": "0|1"} if settings.get("tensor_parallel_size", 1) > 1 \
        else {}
    path = os.pathsep.join([tmp + "/entry", str(TOP / "packaging/python")])
    done = subprocess.run([sys.executable, script, f"{tmp}/{where}", json.dumps(settings)],
                          env={**os.environ, **SETTINGS, **bound, "PYTHONPATH": path}, text=True,
                          capture_output=True, timeout=600)
    lines = [l for l in done.stdout.splitlines() if l.startswith("TOKENS ")]
    assert lines, (done.stdout + done.stderr)[-1500:]
    return json.loads(lines[0][7:])


def entry_point(tmp):
    """What pip writes where the wheel is installed."""
    info = os.path.join(tmp, "entry", "unshardfs-0.dist-info")
    os.makedirs(info)
    with open(info + "/METADATA", "w") as f:
        f.write("Metadata-Version: 2.1\nName: unshardfs\nVersion: 0\n")
    with open(info + "/entry_points.txt", "w") as f:
        f.write("[vllm.general_plugins]\nunshard = unshard.vllm:register\n")


def same_tokens(tmp, want, **settings):
    ranks = settings.pop("ranks", 1)
    got = tokens(tmp, "config", load_format="unshard", tensor_parallel_size=ranks,
                 model_loader_extra_config={"checkpoint": tmp + "/dcp", **settings})
    assert got == want, (got, want)


with tempfile.TemporaryDirectory() as folder:
    make(folder)
    entry_point(folder)
    merged = tokens(folder, "merged", load_format="safetensors")
    assert len(set(merged[0])) > 3, merged
    case(same_tokens, "from-dcp", folder, merged)
    case(lambda: same_tokens(folder, merged, slices=True), "slices")
    case(lambda: same_tokens(folder, merged, slices=True, ranks=2), "two-ranks")
