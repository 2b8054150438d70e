"""Counts how many example files of public trainers use each model type, objective, optimizer and peft method that vprof
implements in Go: bench/reference/data/tails.json.

    python tools/evidence/tails.py huggingface/trl=trl.git pytorch/torchtune=torchtune.git ... \\
        --out bench/reference/data/tails.json --page docs/lab/evidence.md tools/evidence/preface.md

Each argument names a repository of REPOSITORIES and its git directory, which may be bare. Its newest commit is read. A
name is kept if at least 3 files of at least 2 repositories use it. Comment lines and Markdown files do not count.
"""

import argparse
import collections
import json
import re
import subprocess

# Folders with examples, by repository.
REPOSITORIES = {
    "axolotl-ai-cloud/axolotl": ["examples/"],
    "hiyouga/LLaMA-Factory": ["examples/"],
    "modelscope/ms-swift": ["examples/"],
    "pytorch/torchtune": ["recipes/"],
    "huggingface/trl": ["examples/", "trl/scripts/"],  # examples/datasets is left out: it names models of others
    "huggingface/alignment-handbook": ["recipes/", "scripts/"],
    "huggingface/open-r1": ["recipes/", "scripts/", "slurm/", "src/open_r1/"],
}
LEFT_OUT = ("examples/datasets/",)
ENDINGS = (".yaml", ".yml", ".sh", ".slurm", ".py", ".ipynb")
FILES, OF = 3, 2  # a name is kept if at least FILES files of at least OF repositories use it

# Model types and patterns of model names. The first row whose pattern matches the beginning of a name applies. A row
# has several types if parts of the model have their own.
MODELS = """
afmoe: trinity-
apertus: apertus-
arcee: afm-
bert: bert-(base|large), swift_test_bert, test_bert
cohere2: c4ai-command-r7b, tiny-aya
cohere: c4ai-command-r
cwm: cwm
dbrx: dbrx
deepseek_v2: deepseek-v2, kt_ft_deepseekv2
-: deepseek-(v4|vl|ocr)
deepseek_v3: deepseek-v3, deepseek-r1$, kt_ft_deepseekv3, moonlight-
qwen3: deepseek-r1-0528-qwen3, skywork-reward-v2-qwen3, plano-orchestrator
qwen2: deepseek-r1-distill-qwen, deepcoder, olympiccoder, openr1-distill, cogito-v1-preview-qwen, qwq
llama: deepseek-r1-distill-llama, skywork-reward-llama, cogito-v1-preview-llama, orpheus-, xgen-, yi-, falcon-e-
distilbert: distilbert
dots1: dots\\.llm1
ernie4_5: ernie-4\\.5
exaone4: exaone-4
falcon_h1: falcon-h1
falcon: falcon-
gemma4_unified gemma4_unified_text: gemma-4-12b
gemma4 gemma4_text: gemma-4-
gemma3n gemma3n_text: gemma-3n-
gemma3_text: gemma-3-(1b|270m), rnj-1
gemma3 gemma3_text: gemma-3-
gemma2: gemma-2-, gemma2
gemma: gemma-, gemma$, zephyr-7b-gemma
glm4v: glm-4\\.6v-flash, glm-4\\.1v
-: glm-4\\.[56]v, glm-5
glm4_moe_lite: glm-4\\.7-flash
glm4_moe: glm-4\\.[567]
glm4: glm-4-(9b|32b)-0414
glm: glm-4-9b
gpt2: gpt2, cerebras-gpt
gpt_neox: pythia-, gpt-neox, redpajama-
gpt_oss: gpt-oss
gptj: gpt-j
granitemoehybrid: granite-4
granite: granite-
hunyuan_v1_dense: hunyuan-[\\d.]+b
hyperclovax: hyperclovax
internlm3: internlm3
internvl: internvl.*-hf$
jais2: jais-2
jamba: jamba, ai21-jamba
kimi_linear: kimi-linear
lfm2_moe: lfm2-.*-a\\d
lfm2_vl: lfm2(\\.5)?-vl
lfm2: lfm2
llama4 llama4_text: llama-4, llama4
mllama: llama-3\\.2-(11|90)b-vision, llama3_2_vision
llama: (meta-|sparse-)?llama-?[23], codellama, tinyllama, open_llama, llama-7b, smollm-, smollm2
llava: llava-1\\.5, pixtral-12b
mamba: mamba-
mimo: mimo-
minimax_m2: minimax-m2
mistral3 mistral4: mistral-small-4
mistral3 ministral3: ministral-3
mistral3 mistral: mistral-small-3, magistral-small-2509, mistral-medium
mistral: mistral-7b, mistral$, ministral-8b, magistral-, devstral-, zephyr-7b, openhermes-2\\.5-mistral, rm-mistral
mixtral: mixtral, zephyr-orpo-141b
mpt: mpt-
nemotron_h: nvidia-nemotron-3
nemotron: nemotron-mini
olmo3: olmo-3
olmo2: olmo-2
olmoe: olmoe
olmo: olmo-
opt: opt-\\d
paddleocr_vl: paddleocr-vl
-: phi-4-multi
phi3: phi-?[34]
phi: phi-
qwen2_moe: qwen1\\.5-moe, qwen2-57b
-: qwen(2-audio|2\\.5-omni|3-omni|3-tts|3\\.8|-7b)
qwen2_vl: qwen2-?vl, gme-qwen2-vl
qwen2_5_vl: qwen2[._]5-?vl
qwen2: qwen1\\.5, qwen2
qwen3_5_moe qwen3_5_moe_text: qwen3\\.5-.*-a\\d, kt_ft_qwen35moe
qwen3_5 qwen3_5_text: qwen3\\.5
qwen3_next: qwen3-next
qwen3_vl_moe: qwen3-vl-.*-a\\d, kt_ft_qwen3vl
qwen3_vl: qwen3-?vl
qwen3_moe: qwen3-.*-a\\d, kt_ft_qwen3moe
qwen3: qwen3
roberta: roberta, xlm-roberta, bge-reranker-v2-m3
seed_oss: seed-oss
smollm3: smollm3
smolvlm: smolvlm2
solar_open: solar-open
stablelm: stablelm
starcoder2: starcoder2, starchat2
vit: vit-(base|large|huge)
voxtral: voxtral
wav2vec2: wav2vec2
whisper: whisper
youtu: youtu-
ministral granitemoe granitemoeshared: $.
"""

# Patterns of optimizers. OPTIMIZER(...) matches the value of an optimizer key in any notation.
OPTIMIZERS = {
    "adamw": "OPTIMIZER(adamw_torch|adamw_torch_fused|adamw)",
    "adamw8bit": "OPTIMIZER(adamw_bnb_8bit|adamw_8bit)|bitsandbytes.optim.AdamW8bit",
    "paged-adamw8bit": "OPTIMIZER(paged_adamw_8bit)|bitsandbytes.optim.PagedAdamW8bit",
    "paged-adamw32bit": "OPTIMIZER(paged_adamw_32bit|paged_adamw)|bitsandbytes.optim.PagedAdamW\\b",
    "lion8bit, lion32bit, paged-lion8bit, paged-lion32bit": "OPTIMIZER((paged_)?lion(_8bit|_32bit)?)",
    "ademamix8bit, ademamix32bit, paged-ademamix8bit, paged-ademamix32bit": "OPTIMIZER((paged_)?ademamix(_8bit|_32bit)?)",
    "adamw8bit-torchao": "OPTIMIZER(adamw_torch_8bit|ao_adamw_8bit)|torchao.*AdamW8bit",
    "adamw4bit": "OPTIMIZER(adamw_torch_4bit|ao_adamw_4bit)|torchao.*AdamW4bit",
    "adamw-fp8": "OPTIMIZER(ao_adamw_fp8)|torchao.*AdamWFp8",
    "muon": "OPTIMIZER((dist_)?muon(clip)?)|use_muon: true",
    "rmsprop": "OPTIMIZER(rmsprop)|optim.RMSprop",
    "sgd": "OPTIMIZER(sgd)|optim.SGD",
    "adafactor-transformers": "OPTIMIZER(adafactor)",
    "schedule-free-adamw, schedule-free-sgd": "OPTIMIZER(schedule_free_(adamw|sgd))",
    "adam-mini": "OPTIMIZER(adam_?mini)|use_adam_mini: true",
    "galore-adamw, galore-adamw8bit, galore-adafactor": "OPTIMIZER(q?_?galore_\\w+)|use_galore:? true",
    "apollo-adamw": "OPTIMIZER(apollo_adamw)|use_apollo: true",
    "badam": "use_badam: true",
    "came": "OPTIMIZER(came\\w*)|use_came: true",
    "lomo, adalomo": "OPTIMIZER((ada)?lomo)",
    "lisa (train-only, state-of-frozen)": "lisa_n_layers:|lisa_activated_layers",
    "grokadamw": "OPTIMIZER(grokadamw)",
    "stable-adamw": "OPTIMIZER(stable_adamw)",
    "adagrad, adadelta, adamax, nadam, radam, rprop": "OPTIMIZER(adagrad|adadelta|adamax|nadam|radam|rprop)",
}
KEY = r"""(?:--|\b)optim(?:izer)?(?:[:=]\s*|\s+)[\\"']*(?:%s)\b(?![.(=])"""

# Patterns of objectives. RL(...) matches the value of a trainer's key, CLASS(...) a class of TRL.
OBJECTIVES = {
    "dpo": "RL(dpo)|CLASS(DPO)|DPOLoss",
    "kto": "RL(kto)|CLASS(KTO)",
    "orpo": "RL(orpo)|CLASS(ORPO)|pref_loss: orpo",
    "cpo": "RL(cpo)|CLASS(CPO)",
    "simpo": "RL(simpo)|pref_loss: simpo|loss_type[ :=\"']+simpo",
    "reward": "RL(rm)|CLASS(Reward)|reward_model: true",
    "grpo": "RL(grpo|gdpo)|CLASS(GRPO)|grpo_full_finetune",
    "gkd": "RL(gkd)|CLASS(GKD)",
    "kd": "kd_trainer: true|ForwardKL|KDRecipe",
    "ebft": "RL(ebft)",
    "dft": "use_dft_loss: true|enable_dft_loss true|loss_type[ :=\"']+dft",
    "asft": "use_asft_loss: true",
    "eaft": "use_eaft(_loss)?: true",
    "embedding": "task_type[ :=\"']+embedding",
    "reranker": "task_type[ :=\"']+(generative_)?reranker",
}
RL = r"""\b(?:rl|stage|rlhf_type)[ :="']+(?:%s)\b"""
CLASS = r"""\b%s(?:Trainer|Config)\b"""
# In these repositories a recipe is YAML for the script after which its folder is named.
BY_FOLDER = ("huggingface/alignment-handbook", "huggingface/open-r1")

# Methods of peft by class name.
PEFT = (
    "AdaLoRA AdaptionPrompt AdaMSS BdLora BEFT BOFT C3A DEFT Cartridge DeLoRA FourierFT FRoD GLoRA GraLoRA HiRA HRA IA3 KaSA Lily LoHa "
    "LoKr LoRA-FA MiCA MiSS MultitaskPromptTuning OFT OSF PEANuT PromptEncoder Poly PrefixTuning PromptTuning PSOFT PVeRA RandLora RoAd "
    "Shadow Shira Supertuning TinyLora TrainableTokens UniLoRA VBLoRA VeLoRA Vera WaveFT LNTuning LoRA DoRA"
).split()
OTHER_NAMES = {"MiSS": "bone|miss", "LoRA": "q?lora", "DoRA": r"use_dora[ :=]+true|peft_use_dora[ :=]+true", "PromptEncoder": "p_tuning"}


def model_rows(table=MODELS):
    """Yields (pattern, types) of each row, in order."""
    for line in table.strip().splitlines():
        types, patterns = line.split(": ")
        for pattern in patterns.split(", "):
            yield re.compile(pattern), types.split()


MODEL_ROWS = tuple(model_rows())


def types_of(text, rows=MODEL_ROWS):
    """Returns the types of all models that a text names."""
    found = set()
    for word in set(re.findall(r"[\w.-]+", text.lower())):
        first = next((types for pattern, types in rows if pattern.match(word) and not re.search(r"-data(-|$)|-sft-mixin", word)), [])
        found.update(first)
    return found - {"-"}


def peft_pattern(name):
    other = OTHER_NAMES.get(name, "")
    if name == "DoRA":
        return other
    word = other or name.lower()
    return rf"\b{name}Config\b|\b(?:adapter|finetuning_type|tuner_type|peft_type)[ :=\"']+(?:{word})\b" + (r"|use_peft\b" if name == "LoRA" else "")


def spelled(pattern):
    """Compiles a pattern after expanding OPTIMIZER, RL and CLASS."""
    for short, long in (("OPTIMIZER", KEY), ("RL", RL), ("CLASS", CLASS)):
        pattern = re.sub(rf"\b{short}\(((?:[^()]|\([^()]*\))*)\)", lambda m, long=long: long % m[1], pattern)
    return re.compile(pattern, re.IGNORECASE if "Config" not in pattern else 0)


TESTS = {
    "objectives": {name: spelled(p) for name, p in OBJECTIVES.items()},
    "optimizers": {name: spelled(p) for name, p in OPTIMIZERS.items()},
    "peft": {name: re.compile(peft_pattern(name), re.IGNORECASE) for name in PEFT},
}


def code(path, text):
    """Returns a file's text without comment lines; of a notebook only the code cells."""
    if path.endswith(".ipynb"):
        text = "\n".join("".join(c["source"]) for c in json.loads(text)["cells"] if c["cell_type"] == "code")
    return "\n".join(line for line in text.splitlines() if not re.match(r"\s*#", line))


def uses(repository, path, text):
    """Returns the names that a file uses, by kind."""
    text = code(path, text)
    found = {kind: {name for name, pattern in tests.items() if pattern.search(text)} for kind, tests in TESTS.items()}
    if repository in BY_FOLDER and path.endswith((".yaml", ".sh", ".slurm")):
        found["objectives"] |= set(path.split("/")[:-1]) & set(OBJECTIVES)
    return {"model types": types_of(text), **found}


def git(folder, *command):
    return subprocess.run(["git", "-C", folder, *command], capture_output=True, check=True).stdout.decode(errors="replace")


def read(repository, folder):
    """Yields (path, text) of all example files."""
    for path in git(folder, "ls-tree", "-r", "--name-only", "HEAD", *REPOSITORIES[repository]).splitlines():
        if path.endswith(ENDINGS) and not path.startswith(LEFT_OUT):
            yield path, git(folder, "show", "HEAD:" + path)


def all_names():
    types = {t for _, row in model_rows() for t in row if t != "-"}
    return {"model types": types, **{kind: set(tests) for kind, tests in TESTS.items()}}


def count(files):
    """Returns by kind and name the number of files that use it in each repository. files are (repository, path, text).
    """
    counts = {kind: {name: collections.Counter() for name in names} for kind, names in all_names().items()}
    for repository, path, text in files:
        for kind, names in uses(repository, path, text).items():
            for name in names:
                counts[kind][name][repository] += 1
    return counts


def kept(by_repository):
    return sum(by_repository.values()) >= FILES and len(by_repository) >= OF


def record(counts, repositories):
    return {
        "schema": "vprof.tails/v1",
        "rule": {"files": FILES, "repositories": OF},
        "repositories": repositories,
        "counts": {
            kind: {name: {"files": sum(by.values()), "kept": kept(by), "by": dict(sorted(by.items()))} for name, by in sorted(names.items())}
            for kind, names in counts.items()
        },
    }


START, END = "<!-- tails -->", "<!-- /tails -->"


def page(found):
    """Returns the section of docs/lab/evidence.md."""
    out = [START, "Example files of " + "; ".join(f"{name} `{r['commit'][:12]}` {r['files']}" for name, r in found["repositories"].items()) + "."]
    out += ["", "With the number of files:", ""]
    for kind, names in found["counts"].items():
        used = {n: c for n, c in names.items() if c["files"]}
        most = ", ".join(f"{n} {c['files']}" for n, c in used.items() if c["kept"])
        fewer = sum(not c["kept"] for c in used.values())
        out.append(f"- {kind} in 3 files of 2 repositories: {most}; {fewer} more in fewer, {len(names) - len(used)} in none")
    return "\n".join([*out, END])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", nargs="+", help="NAME=GIT_DIRECTORY")
    parser.add_argument("--out", required=True, help="the record to write")
    parser.add_argument("--page", nargs="*", default=[], help="the pages whose section to write")
    options = parser.parse_args()
    folders = dict(given.split("=", 1) for given in options.repository)
    files, repositories = [], {}
    for name in sorted(folders):
        examples = list(read(name, folders[name]))
        files += [(name, path, text) for path, text in examples]
        commit, date = git(folders[name], "log", "-1", "--format=%H %cI").split()
        repositories[name] = {"commit": commit, "date": date, "folders": REPOSITORIES[name], "files": len(examples)}
    found = record(count(files), repositories)
    with open(options.out, "w", encoding="utf-8") as f:
        json.dump(found, f, indent=1)
        f.write("\n")
    for path in options.page:
        with open(path, encoding="utf-8") as f:
            text = f.read()
        before, after = text.split(START)[0], text.split(END)[1]
        with open(path, "w", encoding="utf-8") as f:
            f.write(before + page(found) + after)


if __name__ == "__main__":
    main()
