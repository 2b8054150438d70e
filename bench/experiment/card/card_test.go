package card_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/card"
	"github.com/vprof/vprof/bench/report"
)

// repository writes files into a folder, and returns it.
func repository(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return dir
}

func TestFindReadsDocumentedCommands(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{
			"```bash\npip install -r requirements.txt\npython train.py --lr 1e-4 \\\n    --batch-size 8\n```",
			"python train.py --lr 1e-4 --batch-size 8",
		},
		{
			"$ CUDA_VISIBLE_DEVICES=0 torchrun --nproc_per_node=4 train.py --out 'a b'  # on four",
			"torchrun --nproc_per_node=4 train.py --out a b",
		},
		{"    python3 train.py --data <data dir> > log.txt", "python3 train.py --data absent-data-dir"},
		{
			"MODEL=\"org/model\"\npython train.py --model $MODEL --out ${OUT_DIR}",
			"python train.py --model org/model --out absent-out_dir",
		},
		{"- run: python train.py", "python train.py"},
		{"(env)[dir]$ python train.py --to=\"a b\" --name '' -o [--cache]", "python train.py --to=a b --name  -o"},
		{"mpiexec -n 8 python train.py --lr 1", "python train.py --lr 1"},
		{"# `python run train.py`\nuv run python train.py --lr 1", "python train.py --lr 1"},
		{"python -m torch.distributed.launch train.py", "python -m torch.distributed.launch train.py"},
		{"$ tool-train --lr 1", "python -m tool.train --lr 1"},
		{"python train.py $FLAGS --to ${now:%Y}\nFLAGS=\"--lr 1\"", "python train.py --lr 1 --to ${now:%Y}"},
		{"CUDA_VISIBLE_DEVICES=0 tool-train sft --lr 1", "python -m tool.train sft --lr 1"},
		{
			"# python train.py \\\npython -m torch.distributed.launch train.py --lr 1",
			"python -m torch.distributed.launch train.py --lr 1",
		},
		{"python train.py \\\n  --lr 1 \\  # the rate\n  --epochs 2", "python train.py --lr 1 --epochs 2"},
		{
			"NAME=${NAME:-\"tiny\"}\npython train.py --name ${NAME} --size ${SIZE:-7} \"$@\"",
			"python train.py --name tiny --size 7",
		},
		{"python train.py --port=<a port>", "python train.py --port=29511"},
		{
			"python train.py --model <name>\npython train.py --model tiny --data <dir>",
			"python train.py --model tiny --data absent-dir",
		},
		{"python train.py --config your.yaml\npython train.py --config have.yaml", "python train.py --config have.yaml"},
		{"python train.py mode=sample_eval\npython train.py mode=train", "python train.py mode=train"},
		{"python train.py --is_training 0\npython train.py --is_training 1", "python train.py --is_training 1"},
		{"1. Run `python train.py --lr 1`, and wait.", "python train.py --lr 1"},
		{
			"ARGS=(\n  --lr 1  # the rate\n  --name \"tiny\"\n)\naccelerate launch train.py \\\n  \"${ARGS[@]}\" -v",
			"accelerate launch train.py --lr 1 --name tiny -v",
		},
		{"accelerate launch inversion.py --lr 1", "accelerate launch inversion.py --lr 1"},
		{"torchrun fid.py calc\npython run.py --encoder a\npython inversion.py", "python inversion.py"},
		{"See `train.py`, or run it:\npython inversion.py --lr 1", "python inversion.py --lr 1"},
		{"- To train a network: run `train.py`\n- to test one: run `test.py`", "python train.py"},
		{"python train.py --lr 1 2>&1 | tee log", "python train.py --lr 1"},
		{"size=7 # or 14\npython train.py --size $size", "python train.py --size 7"},
		{"python train.py\n  --lr 1\n  --epochs 2\nand wait", "python train.py --lr 1 --epochs 2"},
		{"python train.py --model /path/to/model\npython train.py --model tiny", "python train.py --model tiny"},
		{"tool-train serve tiny\ntool-train tune tiny", "python -m tool.train tune tiny"},
		{"python train.py --do_eval\npython train.py --do_train --do_eval", "python train.py --do_train --do_eval"},
		{"python -m paddle.distributed.launch train.py\npython train.py --lr 1", "python train.py --lr 1"},
		{"torchrun --nnodes=... --node_rank=... train.py --bs=768", "torchrun train.py --bs=768"},
		{
			"torchrun --master_port=PORT train.py --bs SIZE A_PATH",
			"torchrun --master_port=29511 train.py --bs absent-size absent-a_path",
		},
		{"python train.py --cfg a.yaml BATCH_SIZE 4", "python train.py --cfg a.yaml BATCH_SIZE 4"},
		{"python train.py --config=sub/<name>.yaml", "python train.py --config=sub/have.yaml"},
		{"python train.py --config sub/{NAME}.yaml", "python train.py --config sub/have.yaml"},
		{"python train.py --config <name>.yml", "python train.py --config small.yml"},
		{"python train.py --mode sample\npython train.py --mode train", "python train.py --mode train"},
		{"$ cd sub\n$ python3 inner.py", "python3 inner.py"},
		{"cd ./sub && python inner.py --lr 1", "python inner.py --lr 1"},
		{"cd other\npython train.py", "python train.py"},
		{"cd /etc\npython train.py", "python train.py"},
		{"cd ../..\npython train.py", "python train.py"},
		{"python train.py --config sub/<name>.toml", "python train.py --config sub/absent-name.toml"},
		{"python train.py --help\npython submit_train.py", ""},
		{"python test.py\npython missing_train.py\npython evaluate.py", ""},
	} {
		files := map[string]string{"README.md": c.text, "sub/have.yaml": ""}
		for _, name := range []string{"train.py", "test.py", "evaluate.py", "fid.py", "run.py"} {
			files[name] = ""
		}
		files["configs/small.yml"], files["sub/inner.py"] = "", "loss.backward()"
		files["inversion.py"] = "loss.backward()"
		files["pyproject.toml"] = "[project.scripts]\ntool-train = \"tool.train:main\"\n"
		found, err := card.Find(repository(t, files))
		if c.want == "" {
			require.ErrorContains(t, err, "no training command")
			continue
		}
		require.NoError(t, err, c.text)
		require.Equal(t, c.want, strings.Join(found[0].Args, " "))
		require.Contains(t, found[0].From, "README.md:")
	}
}

func TestCommandsRunInTheFolderThatDocumentsThem(t *testing.T) {
	found, err := card.Find(repository(t, map[string]string{
		"README.md": "a collection", "one/scripts/tiny.sh": "python train.py --lr 1", "one/train.py": "",
	}))
	require.NoError(t, err)
	require.Equal(t, "one", found[0].Dir)
	found, err = card.Find(repository(t, map[string]string{"README.md": "`python train.py --lr 1`", "tiny/train.py": ""}))
	require.NoError(t, err)
	require.Equal(t, "tiny", found[0].Dir)
}

func TestScriptsThatTrainAreFoundWhereNoneIsDocumented(t *testing.T) {
	main := "\nif __name__ == '__main__':\n"
	files := map[string]string{
		"README.md": "a package", "pkg/layers.py": "loss.backward()", "projects/add/add.py": "Trainer(model)" + main,
		"tests/test_add.py": "loss.backward()" + main,
	}
	find := func() string {
		found, err := card.Find(repository(t, files))
		require.NoError(t, err)
		return found[0].From + " " + strings.Join(found[0].Args, " ")
	}
	require.Equal(t, "projects/add/add.py:1 python projects/add/add.py", find())
	files["train_small.py"] = "for x in data: loss.backward()"
	require.Equal(t, "train_small.py:1 python train_small.py", find())
	files["README.md"] = "python train_small.py --lr 1"
	require.Equal(t, "README.md:1 python train_small.py --lr 1", find())
}

func TestScriptsOfTheShellHaveTheArgumentsOfTheirDocumentedCall(t *testing.T) {
	found, err := card.Find(repository(t, map[string]string{
		"README.md":        "    bash scripts/train.sh dp3 hammer 0 > log.txt\n",
		"scripts/train.sh": "task=${2}\nname=\"$task-${1}-$4\"\nrun=out/${task}_$3\ncd tiny\npython train.py -c ${1}.yaml $run $name",
		"tiny/train.py":    "",
	}))
	require.NoError(t, err)
	require.Equal(t, "python train.py -c dp3.yaml out/hammer_0 absent-name", strings.Join(found[0].Args, " "))
	require.Equal(t, "tiny", found[0].Dir)
}

func TestCardIsWrittenAndResumed(t *testing.T) {
	c := &card.Card{Command: card.Command{Args: []string{"python", "train.py"}, From: "README.md:3"}, GPU: "b200"}
	c.Rows = []card.Variant{
		{
			Setting: "as documented", Args: c.Command.Args, Result: "fits", Need: 8 << 30, GPUs: []string{"rtx-3090"},
			Replaced: []report.Replaced{{Kind: "weights", Name: "org/model", By: "shapes"}},
		},
		{
			Setting: "batch 1", Args: []string{"python", "train.py", "-b", "1"}, Result: "fits", Need: 4 << 30,
			GPUs: []string{"t4"},
		},
		{Setting: "LoRA", Args: c.Command.Args, Result: "failed: a | <b>"},
	}
	for name, want := range map[string]string{
		"card.md":   "At least **4.00 GiB** of GPU memory (batch 1); the smallest GPU that fits: t4.",
		"badge.svg": "from 4.00 GiB",
		"card.html": "failed: a | &lt;b&gt;",
	} {
		var b bytes.Buffer
		require.NoError(t, c.Write(&b, name))
		require.Contains(t, b.String(), want)
	}
	again := &card.Card{Command: c.Command, GPU: "b200"}
	again.Read([]byte(`{"command": {"args": ["python", "train.py"]}, "gpu": "b200", "rows": [{"setting": "batch 1"}]}`))
	require.Len(t, again.Rows, 1)
	again = &card.Card{Command: c.Command, GPU: "t4"}
	again.Read([]byte(`{"command": {"args": ["python", "train.py"]}, "gpu": "b200", "rows": [{"setting": "batch 1"}]}`))
	require.Empty(t, again.Rows, "another GPU's")
}
