package slurm

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/fleet"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/tools/golden"
)

const config = `name: lab
models: [resnet18]
boards: [{gpu: t4, partition: gpu-small, gres: "gpu:t4:1"}]
strategy: {at-once: 4}
slurm:
  account: team
  qos: long
  time: 2:00:00
  cpus: 4
  memory: 16G
  setup: |
    module load cuda
    ulimit -n 4096
  options: [--constraint=nvlink]
  container: /images/it's vprof.sif
`

func engine(t *testing.T, text string) *Engine {
	c, err := fleet.Read(strings.NewReader(text), "lab.yaml")
	require.NoError(t, err)
	f := &fleet.Folder{Dir: "/shared/my lab.fleet", Config: c}
	f.Name = c.Name
	for _, b := range c.GPUs {
		f.GPUs = append(f.GPUs, fleet.GPUTasks{GPUKind: b, Key: b.Key(), Jobs: 12, Tasks: 12})
	}
	return &Engine{Folder: f, Program: "/usr/bin/vprof"}
}

// A script is one that a shell reads, whatever names are in it.
func TestScripts(t *testing.T) {
	e := engine(t, config)
	text, err := e.Script(e.Folder.GPUs[0], []int{7, 0, 1, 2, 11}, []string{"n3", "n4"})
	require.NoError(t, err)
	golden.Equal(t, "testdata/job.sh", []byte(text))
	pyxis := engine(t, strings.Replace(config, "  account", "  container-runtime: pyxis\n  account", 1))
	more, err := pyxis.Script(pyxis.Folder.GPUs[0], []int{0}, nil)
	require.NoError(t, err)
	require.Contains(t, more,
		`exec srun --container-image='/images/it'\''s vprof.sif' --container-mounts='/shared/my lab.fleet:/shared/my lab.fleet' /usr/bin/vprof fleet task`)
	for _, script := range []string{text, more} {
		file := filepath.Join(t.TempDir(), "job.sh")
		require.NoError(t, os.WriteFile(file, []byte(script), 0o600))
		out, err := exec.Command("bash", "-n", file).CombinedOutput()
		require.NoError(t, err, string(out))
	}
}

// What a line of #SBATCH cannot hold is refused; nothing leaves its line.
func TestOptionsOfSbatchStayOptions(t *testing.T) {
	for _, value := range []string{"a'b", `a"b`, "a\\b", "a\nrm -rf ~", "a\rb"} {
		e := engine(t, config)
		e.Folder.Config.Slurm.Account = value
		_, err := e.Script(e.Folder.GPUs[0], []int{0}, nil)
		require.True(t, input.IsBadInput(err))
		e = engine(t, config)
		e.Folder.Dir = "/shared/" + value
		_, err = e.Script(e.Folder.GPUs[0], []int{0}, nil)
		require.True(t, input.IsBadInput(err))
	}
	e := engine(t, config)
	e.Folder.Dir = "/shared/100% #1"
	text, err := e.Script(e.Folder.GPUs[0], []int{0}, nil)
	require.NoError(t, err)
	require.Contains(t, text, `#SBATCH --output="/shared/100%% #1/t4.gpu-small/log/task-%a-%A.txt"`)
}

func TestActiveTasksAreReadFromSqueue(t *testing.T) {
	tasks := parseQueue(
		"12|0|RUNNING|None\n12|1|PENDING|Resources\n12|2|COMPLETING|None\n13|0|PENDING|None\n12|N/A|PENDING|x\n99|3|RUNNING|None\nnonsense\n",
		map[string]string{"12": "t4", "13": "h100"})
	require.Equal(t, map[fleet.Task]string{
		{GPU: "t4", Index: 0}: fleet.RunningState, {GPU: "t4", Index: 1}: "pending: Resources",
		{GPU: "h100", Index: 0}: "pending",
	}, tasks)
}

func TestIndicesOfArrays(t *testing.T) {
	for want, tasks := range map[string][]int{"0": {0}, "0-3": {3, 1, 2, 0}, "0,2,4-6": {0, 2, 4, 5, 6}} {
		require.Equal(t, want, arraySpec(tasks, 0))
		require.Equal(t, want+"%2", arraySpec(tasks, 2))
	}
}
