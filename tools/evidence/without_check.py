"""Compares allocated and reserved bytes of scripts under `vprof run --without-weights` with runs on real weights.

    python3 tools/evidence/without_check.py --vprof ./vprof --python PYTHON [--only NAME]

The PyTorch of PYTHON needs transformers, peft, accelerate, timm and torchvision. Small models are made and saved by
their own libraries. Each script runs once with the saved files, and once with folders from which the weights were
removed.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

MODELS = '''
import sys, torch, transformers as t
out = sys.argv[1]
def save(name, model, **kw):
    model.save_pretrained(f"{out}/{name}", **kw)
torch.manual_seed(0)
save("gpt2", t.GPT2LMHeadModel(t.GPT2Config(n_embd=256, n_layer=4, n_head=4)))
llama = t.LlamaConfig(hidden_size=512, intermediate_size=1376, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=4, vocab_size=8000)
save("llama", t.LlamaForCausalLM(llama))
save("llama16", t.LlamaForCausalLM(llama).bfloat16())
save("shards", t.LlamaForCausalLM(llama).bfloat16(), max_shard_size="20MB")
save("bert", t.BertForMaskedLM(t.BertConfig(hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024)))
save("t5", t.T5ForConditionalGeneration(t.T5Config(decoder_start_token_id=0, d_model=256, d_ff=512, num_layers=3, num_heads=4, d_kv=64, vocab_size=8000)))
save("vit", t.ViTForImageClassification(t.ViTConfig(hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=512)))
save("whisper", t.WhisperForConditionalGeneration(t.WhisperConfig(d_model=256, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
    decoder_attention_heads=4, encoder_ffn_dim=512, decoder_ffn_dim=512)))
save("mixtral", t.MixtralForCausalLM(t.MixtralConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2, num_local_experts=4, vocab_size=8000)).bfloat16())
save("qwenmoe", t.Qwen3MoeForCausalLM(t.Qwen3MoeConfig(hidden_size=256, intermediate_size=512, moe_intermediate_size=128, num_hidden_layers=3,
    num_attention_heads=4, num_key_value_heads=2, num_experts=8, num_experts_per_tok=2, vocab_size=8000, head_dim=64)).bfloat16())
save("gemma", t.Gemma3ForCausalLM(t.Gemma3TextConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2, vocab_size=16000, head_dim=64)).bfloat16())
import peft
save("lora", peft.get_peft_model(t.LlamaForCausalLM(llama), peft.LoraConfig(r=64, target_modules=["q_proj", "v_proj", "up_proj"])))
import torchvision, timm
resnet = torchvision.models.resnet50()
torch.save(resnet.state_dict(), f"{out}/resnet.pth")
torch.save({"state_dict": {"module." + k: v for k, v in resnet.state_dict().items()}, "epoch": 3}, f"{out}/wrapped.pth")
from safetensors.torch import save_file
save_file(resnet.state_dict(), f"{out}/resnet.safetensors")
save_file(timm.create_model("vit_tiny_patch16_224").state_dict(), f"{out}/timm.safetensors")
optimizer = torch.optim.AdamW(resnet.parameters())
for p in resnet.parameters():
    p.grad = torch.zeros_like(p)
optimizer.step()
torch.save({"model": resnet.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 7, "best": 0.5}, f"{out}/resume.pth")
'''

BEGIN = '''
import copy, sys, torch, transformers as t
at = sys.argv[1]
def causal(m, n=96, optimizer=torch.optim.AdamW):
    m.train()
    o = optimizer([p for p in m.parameters() if p.requires_grad], lr=1e-4)
    for _ in range(3):
        ids = torch.randint(0, 5000, (4, n), device="cuda")
        m(input_ids=ids, labels=ids).loss.backward(); o.step(); o.zero_grad()
def images(m, n=4, size=224, o=None, start=0):
    m.train()
    o = o or torch.optim.AdamW(m.parameters())
    for _ in range(start, start + 3):
        out = m(torch.randn(n, 3, size, size, device="cuda"))
        getattr(out, "logits", out).float().square().mean().backward(); o.step(); o.zero_grad()
auto = t.AutoModelForCausalLM.from_pretrained
'''

SCRIPTS = {
    "gpt2 to the host": 'causal(auto(f"{at}/gpt2").cuda())',
    "llama, device_map": 'causal(auto(f"{at}/llama", device_map="cuda"))',
    "bf16 file as fp32": 'causal(auto(f"{at}/llama16", dtype=torch.float32, device_map="cuda"))',
    "fp32 file as bf16, auto": 'causal(auto(f"{at}/llama", dtype=torch.bfloat16, device_map="auto"))',
    "shards": 'causal(auto(f"{at}/shards", device_map="cuda", attn_implementation="eager"))',
    "tied, bf16": 'causal(auto(f"{at}/gemma", device_map="cuda"))',
    "mixtral": 'causal(auto(f"{at}/mixtral", device_map="cuda"))',
    "mixtral to the host": 'causal(auto(f"{at}/mixtral").cuda())',
    "qwen3 moe": 'causal(auto(f"{at}/qwenmoe", device_map="cuda"))',
    "classifier": '''
m = t.AutoModelForSequenceClassification.from_pretrained(f"{at}/bert", num_labels=7, device_map="cuda"); m.train()
o = torch.optim.AdamW(m.parameters())
for _ in range(3):
    m(input_ids=torch.randint(0, 5000, (8, 128), device="cuda"), labels=torch.zeros(8, dtype=torch.long, device="cuda")).loss.backward()
    o.step(); o.zero_grad()''',
    "t5": 'causal(t.T5ForConditionalGeneration.from_pretrained(f"{at}/t5").cuda())',
    "vit": 'images(t.AutoModelForImageClassification.from_pretrained(f"{at}/vit").to("cuda"))',
    "whisper": '''
m = t.WhisperForConditionalGeneration.from_pretrained(f"{at}/whisper", dtype=torch.float16).cuda(); m.train()
o = torch.optim.SGD(m.parameters(), lr=1e-4)
for _ in range(3):
    m(input_features=torch.randn(2, 80, 3000, device="cuda").half(), labels=torch.randint(0, 5000, (2, 64), device="cuda")).loss.backward(); o.step()''',
    "adapter": '''
import peft
causal(peft.PeftModel.from_pretrained(auto(f"{at}/llama", device_map="cuda"), f"{at}/lora", is_trainable=True))''',
    "copy as teacher": '''
m = auto(f"{at}/llama16"); teacher = copy.deepcopy(m).cuda(); m = m.float().cuda(); causal(m)''',
    "checkpointed, from disk to half": '''
m = auto(f"{at}/llama").half().cuda(); m.gradient_checkpointing_enable(); causal(m, 256, torch.optim.SGD)''',
    "timm": '''
import timm
images(timm.create_model("vit_tiny_patch16_224", pretrained=True, pretrained_cfg_overlay=dict(file=f"{at}/timm.safetensors"), num_classes=10).cuda())''',
    "torch.load": '''
import torchvision
m = torchvision.models.resnet50(); m.load_state_dict(torch.load(f"{at}/resnet.pth", map_location="cpu")); images(m.cuda())''',
    "torch.load to the GPU, renamed": '''
import torchvision
m = torchvision.models.resnet50().cuda()
state = torch.load(f"{at}/wrapped.pth", map_location="cpu")["state_dict"]
m.load_state_dict({k.replace("module.", ""): v for k, v in state.items()}); images(m)''',
    "torch.load to the GPU": '''
import torchvision
m = torchvision.models.resnet50().cuda(); state = torch.load(f"{at}/resnet.pth", map_location="cuda"); m.load_state_dict(state); images(m)''',
    "resume": '''
import torchvision
m = torchvision.models.resnet50().cuda(); o = torch.optim.AdamW(m.parameters())
c = torch.load(f"{at}/resume.pth", map_location="cpu")
m.load_state_dict(c["model"]); o.load_state_dict(c["optimizer"]); images(m, o=o, start=c["epoch"] + 1)''',
    "load_file": '''
import torchvision
from safetensors.torch import load_file
m = torchvision.models.resnet50(); m.load_state_dict(load_file(f"{at}/resnet.safetensors")); images(m.cuda())''',
    "assign": '''
import torchvision
from safetensors.torch import load_file
with torch.device("meta"):
    m = torchvision.models.resnet50()
m.load_state_dict(load_file(f"{at}/resnet.safetensors"), assign=True); images(m.cuda())''',
    "dispatch": '''
import accelerate
with accelerate.init_empty_weights():
    m = t.AutoModelForCausalLM.from_config(t.AutoConfig.from_pretrained(f"{at}/llama"))
causal(accelerate.load_checkpoint_and_dispatch(m, f"{at}/llama/model.safetensors", device_map={"": 0}))''',
    "4-bit": '''
import peft
q = t.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16, bnb_4bit_use_double_quant=True)
m = auto(f"{at}/llama16", quantization_config=q, device_map={"": 0})
causal(peft.get_peft_model(peft.prepare_model_for_kbit_training(m), peft.LoraConfig(r=16)))''',
}


def run(args, folder, script, without):
    """Returns ((allocated, reserved) bytes of a script, "") or, if it failed, (None, the error's text)."""
    command = [args.vprof, "run", "--gpu", "rtx-4090", "--format", "json", "-q", *(["--without-weights"] if without else []), "--", args.python, script, folder]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return None, (done.stderr or done.stdout)[-2500:]
    point = json.loads(done.stdout)["points"][0]["run"]
    return (point["allocated_bytes"], point["reserved_bytes"]), ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vprof", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    equal = tried = 0
    with tempfile.TemporaryDirectory() as folder:
        make = os.path.join(folder, "make.py")
        with open(make, "w") as file:
            file.write(MODELS)
        real, bare = os.path.join(folder, "real"), os.path.join(folder, "bare")
        os.mkdir(real)
        subprocess.run([args.vprof, "run", "-q", "--keep-files", "--", args.python, make, real], capture_output=True)
        shutil.copytree(real, bare, ignore=shutil.ignore_patterns("*.safetensors", "*.pth", "*.index.json"))
        for name, text in SCRIPTS.items():
            if args.only not in name:
                continue
            path = os.path.join(folder, "script.py")
            with open(path, "w") as file:
                file.write(BEGIN + text)
            (with_weights, why), (without, also) = run(args, real, path, False), run(args, bare, path, True)
            tried += 1
            same = with_weights is not None and with_weights == without
            equal += same
            print("%-32s %s %s %s" % (name, "equal" if same else "DIFFERS", with_weights, without), why, also, flush=True)
    print("%d of %d equal" % (equal, tried))
    return equal != tried


if __name__ == "__main__":
    sys.exit(main())
