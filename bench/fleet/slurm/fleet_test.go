//go:build slurm && cuda && linux

package slurm

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/tools/fakecuda"
)

// GPUs are what the nodes have, by the fake driver.
var gpus = []string{"t4", "a100-40", "h100", "rtx-3060"}

// machine is a cluster, and vprof on it.
type machine struct {
	*cluster
	vprof string
	// node is a program that is vprof with the driver of the node that it runs on.
	node string
}

func newMachine(t *testing.T) *machine {
	m := &machine{cluster: startCluster(t, gpus)}
	m.vprof = filepath.Join(m.dir, "vprof")
	build := exec.Command("go", "build", "-tags", "cuda", "-o", m.vprof, "../../../cmd/vprof")
	build.Stderr = os.Stderr
	require.NoError(t, build.Run())

	script := "#!/bin/bash\nexport SOURCE_DATE_EPOCH=1793858400\ncase $SLURMD_NODENAME in\n"
	for i, name := range gpus {
		gpu, err := device.Lookup(name)
		require.NoError(t, err)
		setup := fakecuda.Simulated(gpu)
		setup.GPUs[0].ID, setup.Quiet = i+1, true
		script += name + ")\n"
		for _, v := range setup.Driver(t).Env {
			key, value, _ := strings.Cut(v, "=")
			if key != "FAKECUDA_STATS" { // of one process
				script += fmt.Sprintf("export %s='%s'\n", key, value)
			}
		}
		script += ";;\n"
	}
	// A task stays long enough to be met.
	script += "esac\nexport FAKECUDA_STATS=$(mktemp)\nsleep ${LINGER:-0}\n" + `"` + m.vprof + `" "$@"` +
		"\ncode=$?\nrm -f $FAKECUDA_STATS\nexit $code\n"
	m.node = filepath.Join(m.dir, "vprof-node")
	require.NoError(t, os.WriteFile(m.node, []byte(script), 0o755))
	return m
}

// fleet writes a fleet of 3 models, 4 GPUs and 6 batch sizes.
func (m *machine) fleet(name string) string {
	file := filepath.Join(m.dir, name+".yaml")
	text := fmt.Sprintf("name: %s\nmodels: [resnet18, vit-ti16-224, llama-tiny]\nbatches: 16..512x2\nboards: "+
		"[%s]\nslurm:\n  vprof: %s\n", name, strings.Join(gpus, ", "), m.node)
	require.NoError(m.t, os.WriteFile(file, []byte(text), 0o644))
	return file
}

// run runs vprof, and returns what it says.
func (m *machine) run(args ...string) (said string, code int) {
	cmd := exec.Command(m.vprof, args...)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1793858400")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		require.NoError(m.t, err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// collected returns the answer of a fleet.
func (m *machine) collected(file string) []byte {
	out := file + ".jsonl"
	said, code := m.run("fleet", "collect", file, "-o", out)
	require.Zero(m.t, code, said)
	m.t.Log(said)
	text, err := os.ReadFile(out)
	require.NoError(m.t, err)
	return text
}

// tasks returns the processes of a fleet's tasks on a GPU.
func (m *machine) tasks(fleet, gpu string) []int {
	var pids []int
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(m.t, err)
	for _, path := range found {
		text, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(text, []byte(filepath.Join(m.dir, fleet+".fleet", gpu)+"\x00")) {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(path, "/proc/%d/", &pid); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// A fleet of 3 models, 4 GPUs and 6 batch sizes runs through job arrays. Then one runs into a node that dies, a task
// that is killed and a disk that is full, and is left by an interrupt: run again, it gives the same to the byte.
func TestAFleetOnSlurm(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("the cluster's daemons want root")
	}
	m := newMachine(t)
	calm := m.fleet("calm")
	began := time.Now()
	said, code := m.run("fleet", "run", calm, "--on", "slurm")
	require.Zero(t, code, said)
	t.Logf("undisturbed: %v\n%s", time.Since(began).Round(time.Second), said)
	want := m.collected(calm)
	for i, name := range gpus {
		id := fmt.Sprintf(`"uuid":"GPU-fa000000-0000-0000-0000-00000000%02x00","host":"%s"`, i+1, name)
		require.True(t, bytes.Contains(want, []byte(id)), "%s not in %.2000s", id, want)
	}

	t.Setenv("LINGER", "4") // sbatch hands the environment on
	rough := m.fleet("rough")
	disk := filepath.Join(m.dir, "rough.fleet", "rtx-3060")
	require.NoError(t, os.MkdirAll(disk, 0o755))
	require.NoError(t, syscall.Mount("none", disk, "tmpfs", 0, "size=64k"))
	defer func() { require.NoError(t, syscall.Unmount(disk, 0)) }()
	cmd := exec.Command(m.vprof, "fleet", "run", rough, "--on", "slurm")
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1793858400")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	met := func(gpu string) []int {
		var pids []int
		require.Eventually(t, func() bool {
			pids = m.tasks("rough", gpu)
			return len(pids) > 0
		}, 60*time.Second, 200*time.Millisecond, gpu)
		return pids
	}
	m.killNode("a100-40", met("a100-40"))
	for _, pid := range met("h100") {
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	var text []byte
	defer func() {
		if t.Failed() {
			t.Logf("status:\n%s\nrun:\n%s", text, out.String())
		}
	}()
	require.Eventually(t, func() bool {
		var err error
		text, err = exec.Command(m.vprof, "fleet", "status", rough).CombinedOutput()
		return err == nil && bytes.Contains(text, []byte("no space left on device")) &&
			bytes.Contains(text, []byte("t4               3 of 3 jobs"))
	}, 60*time.Second, time.Second)
	other, code := m.run("fleet", "run", rough, "--on", "slurm")
	require.Equal(t, 2, code, other)
	require.Contains(t, other, ") runs this fleet; watch it with \"vprof fleet status\", or wait for its end")
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Error(t, cmd.Wait())
	require.Equal(t, 130, cmd.ProcessState.ExitCode(), out.String())
	require.Contains(t, out.String(), "running tasks continue; return to them with")
	t.Logf("disturbed:\n%s", out.String())
	incomplete, code := m.run("fleet", "collect", rough)
	require.Equal(t, 2, code)
	require.Contains(t, incomplete, "no space left on device")

	m.startNode("a100-40")
	require.NoError(t, syscall.Mount("none", disk, "tmpfs", syscall.MS_REMOUNT, "size=16m"))
	t.Setenv("LINGER", "0")
	said, code = m.run("fleet", "run", rough, "--on", "slurm")
	require.Zero(t, code, said)
	t.Logf("run again:\n%s", said)
	require.Equal(t, string(want), string(m.collected(rough)))

	cancelled, code := m.run("fleet", "cancel", rough)
	require.Zero(t, code, cancelled)
	require.Contains(t, cancelled, "canceled 0 tasks")
}

func TestUnknownPartitionsAreRefusedBeforeAnythingRuns(t *testing.T) {
	m := newMachine(t)
	file := m.fleet("wrong")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	text = bytes.ReplaceAll(text, []byte("[t4,"), []byte("[{gpu: t4, partition: t5},"))
	require.NoError(t, os.WriteFile(file, text, 0o644))
	said, code := m.run("fleet", "run", file, "--on", "slurm")
	require.Equal(t, 2, code)
	require.Contains(t, said, `GPU t4: Slurm has no partition "t5"; near it: t4; set partition: to one of`)
}
