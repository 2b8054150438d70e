package script

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/internal/supervisor"
	"github.com/vprof/vprof/profiler/device/stubs"
)

//go:embed hook/*.py hook/vprof_hook/*.py hook/bin
//go:embed hook/vprof_kernels hook/vprof_kernels/*/*.py hook/vprof_kernels/*/*/*.py
var hook embed.FS

// Hook returns the Python code of the hook, which runs in the user's process: the contents of all its files, joined.
func Hook() string {
	var b strings.Builder
	err := fs.WalkDir(hook, "hook", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := hook.ReadFile(path)
		fmt.Fprintf(&b, "# ==> %s\n%s\n", strings.TrimPrefix(path, "hook/"), text)
		return err
	})
	if err != nil {
		panic(err) // embedded
	}
	return b.String()
}

// A hookFolder is the temporary folder of one run. It holds the hook, the events and the files that the script saved.
type hookFolder struct {
	dir string
	// running is an open pipe while the run continues; the command's processes watch it.
	running io.Closer
}

// openHookFolder makes a hook folder, and removes the hook folders of runs that were killed.
func openHookFolder() (*hookFolder, error) {
	dir, err := supervisor.Folder("vprof-run-")
	if err != nil {
		return nil, err
	}
	r := &hookFolder{dir: dir}
	if r.running, err = holdOpen(r.path("running")); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err = cmp.Or(os.CopyFS(dir, hook), os.Chmod(r.path("hook/bin/nvidia-smi"), 0o700)); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *hookFolder) path(name string) string { return filepath.Join(r.dir, name) }

// Close removes the hook folder and ends processes that still use it.
func (r *hookFolder) Close() error { return errors.Join(r.running.Close(), os.RemoveAll(r.dir)) }

// removeCreatedFiles removes the empty folders that the command made for files that vprof redirected to the temporary
// folder. It returns the other folders, without subfolders: code other than Python wrote files of unknown names there.
func removeCreatedFiles(events []Event) []string {
	var left []string
	for _, e := range slices.Backward(events) {
		if e.Name != "made" {
			continue
		}
		what, err := os.Lstat(e.Path)
		if err == nil && what.IsDir() && os.Remove(e.Path) != nil {
			left = append(left, e.Path)
		}
	}
	inner := func(path string) bool { return slices.Contains(left, filepath.Dir(path)) }
	return slices.DeleteFunc(slices.Clone(left), inner)
}

// offlineVariables are environment variables that keep experiment trackers from uploading a simulated run.
var offlineVariables = []string{
	"WANDB_MODE=offline", "COMET_OFFLINE=1", "COMET_MODE=disabled", "NEPTUNE_MODE=offline", "CLEARML_OFFLINE_MODE=1",
	"SWANLAB_MODE=disabled", "TRACKIO_DISABLED=1", "HF_HUB_DISABLE_TELEMETRY=1", "MLFLOW_DISABLED=1", "DVCLIVE_TEST=1",
}

// environment returns the command's environment variables: the user's, and variables for the hook and the stubs.
func (c *Command) environment(r *hookFolder) ([]string, error) {
	env := os.Environ()
	set := func(name, value string) { env = append(env, name+"="+value) }
	set("VPROF_HOOK", r.dir)
	if c.Until == "end" {
		c.Steps, c.Until = 0, ""
	}
	set("VPROF_STEPS", strconv.Itoa(c.Steps))
	set("VPROF_UNTIL", c.Until)
	if c.Brief {
		set("VPROF_BRIEF", "1")
	}
	if c.NoGrad {
		set("VPROF_NO_GRAD", "1")
	}
	if c.Timed || c.Device != "" {
		set("VPROF_TIMED", "1")
	}
	set("VPROF_LONGEST", strconv.FormatFloat(c.Longest.Seconds(), 'f', -1, 64))
	path := os.Getenv("PYTHONPATH")
	for _, folder := range slices.Backward(c.Folders) {
		path = prependPath(folder, path)
	}
	set("PYTHONPATH", prependPath(r.path("hook"), path))
	if c.Libraries {
		set("VPROF_LINES", "libraries")
	}
	if c.KeepFiles {
		set("VPROF_KEEP", "1")
	} else {
		// Trackers that write files anyway write them into the hook folder.
		env = append(append(env, offlineVariables...), "WANDB_DIR="+r.dir, "MLFLOW_TRACKING_URI=file:"+r.path("mlruns"))
	}
	env = append(env, c.compileVariables(r)...)
	env, err := c.Without.environment(r, env)
	if err != nil {
		return nil, err
	}
	if c.GPUs > 1 {
		set("VPROF_WORLD", strconv.Itoa(c.GPUs))
		set("VPROF_RANK", strconv.Itoa(c.Rank))
		for _, name := range []string{"WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"} {
			set(name, strconv.Itoa(c.GPUs))
		}
		for _, name := range []string{"RANK", "LOCAL_RANK", "ROLE_RANK"} {
			set(name, strconv.Itoa(c.Rank))
		}
		env = append(env, "GROUP_RANK=0", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500")
	}
	switch {
	case c.Stubs != "":
		return c.withGPU(r, env)
	case c.Device != "":
		set("CUDA_VISIBLE_DEVICES", c.visibleDevices(os.Getenv("CUDA_VISIBLE_DEVICES")))
	}
	return env, nil
}

// inductorFolder is the folder of Inductor's cache within the hook folder.
const inductorFolder = "inductor"

// compileVariables returns the environment variables for torch.compile. Inductor's cache is a folder of this run, or
// the one that the command names: simulated kernel timings must not reach the cache of real runs.
func (c *Command) compileVariables(r *hookFolder) []string {
	env := []string{"TORCHINDUCTOR_CACHE_DIR=" + cmp.Or(c.InductorCache, r.path(inductorFolder))}
	if c.ActivationBudget > 0 {
		env = append(env, fmt.Sprintf("VPROF_ACTIVATION_BUDGET=%g", c.ActivationBudget))
	}
	if c.Triton {
		return append(env, "VPROF_TRITON=1")
	}
	return append(env, "TORCHINDUCTOR_COMPILE_THREADS=1") // there is nothing to compile in processes of its own
}

// driverVersion is a CUDA version times 1000, as in cuDriverGetVersion: newer than any release of PyTorch needs.
const driverVersion = 13020

// withGPU appends the variables that describe the GPU to the stub libraries.
func (c *Command) withGPU(r *hookFolder, env []string) ([]string, error) {
	var gpu bytes.Buffer
	if err := stubs.WriteGPU(&gpu, c.GPU, max(c.GPUs, 1), driverVersion); err != nil {
		return nil, err
	}
	if err := os.WriteFile(r.path("gpu"), gpu.Bytes(), 0o600); err != nil {
		return nil, err
	}
	env = slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, "CUDA_VISIBLE_DEVICES=") })
	env = append(env, "PATH="+prependPath(r.path("hook/bin"), os.Getenv("PATH")),
		"VPROF_STUBS="+c.Stubs, "VPROF_STUB_GPU="+r.path("gpu"),
		"VPROF_STUB_LOG="+r.path("missing"), "VPROF_ORACLE="+r.path("oracle"))
	return env, nil
}

// visibleDevices returns the number of this machine's GPU that the command uses, from CUDA_VISIBLE_DEVICES.
func (c *Command) visibleDevices(otherwise string) string {
	number := strings.TrimPrefix(c.Device, "cuda:")
	index, err := strconv.Atoi(number)
	if all := strings.Split(otherwise, ","); otherwise != "" && err == nil && index < len(all) {
		return all[index]
	}
	return number
}

// prependPath returns a list of paths with another path at its start.
func prependPath(first, list string) string {
	if list == "" {
		return first
	}
	return first + string(os.PathListSeparator) + list
}
