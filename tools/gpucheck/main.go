// Command gpucheck tries vprof on a machine with a GPU that nobody else uses, and leaves what it found in one folder:
// "make gpu-check" runs it. It needs the driver and the binaries beside it, which "make gpu-check-build" makes and
// which can be carried to another machine.
//
//	gpucheck [--with-torch PYTHON] FOLDER
//
// The folder has the output of every step, result.json with the figures and where they come from, and summary.md.
// FOLDER.tar.gz beside it is what to attach to an issue: the same without names of this machine, of its GPUs, of people
// and of programs, and OMITTED.txt says what was left out. With --with-torch models are trained with the PyTorch of an
// interpreter, and what vprof says of them is judged by what they needed. It goes on after a failure, ends a step that
// takes too long, writes what there is so far when it is interrupted, and ends with 0 on a healthy GPU, 1 if a step
// could not run, 3 if the GPU has a defect, 4 without a usable GPU, 5 if a figure fell short. On a simulated driver it
// tries the same, and says in both files that nothing was measured.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func main() {
	python := flag.String("with-torch", "", "Python `interpreter` with PyTorch for CUDA, to judge vprof by it")
	flag.Usage = func() { fmt.Fprintln(os.Stderr, "usage: gpucheck [--with-torch PYTHON] FOLDER") }
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	os.Exit(checked(flag.Arg(0), *python))
}

// checked checks this machine and returns the exit code.
func checked(out, python string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	self, err := os.Executable()
	if err == nil {
		c := &check{bin: filepath.Dir(self), out: out, python: python, screen: os.Stdout}
		err = c.run(ctx)
	}
	var found *verdictError
	switch {
	case errors.As(err, new(noGPU)):
		fmt.Fprintln(os.Stderr, "gpucheck:", err)
		return 4
	case errors.As(err, &found):
		fmt.Fprintln(os.Stderr, "gpucheck:", err)
		return found.verdict.exit()
	case err != nil:
		fmt.Fprintln(os.Stderr, "gpucheck:", err)
		return 1
	}
	return 0
}

// noGPU reports that there is no GPU to check.
type noGPU struct{ error }

// A check is a running check of a machine.
type check struct {
	// bin has the binaries vprof and cuda.test, out receives the results.
	bin, out string
	// python is an interpreter with PyTorch; empty to skip its steps.
	python string
	screen io.Writer
	result result
}

// A step is a command with its outcome.
type step struct {
	Name    string   `json:"name"`
	Command []string `json:"command"`
	Exit    int      `json:"exit_code"`
	Seconds float64  `json:"seconds"`
	// Verdict reports whether a failure shows a fault of the GPU; empty without a failure.
	Verdict verdict `json:"verdict,omitempty"`
}

func (c *check) run(ctx context.Context) error {
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		return err
	}
	if err := c.doctor(ctx); err != nil {
		return err
	}
	c.nvidiaSMI(ctx)
	before := errorsOfGPU(ctx, c.result.UUID)
	withTorch, err := c.torchSteps()
	if err != nil {
		return err
	}
	for _, s := range append(c.steps(), withTorch...) {
		if ctx.Err() != nil {
			break // interrupted: the results so far are written
		}
		if err := c.do(ctx, s[0], s[1:]...); err != nil {
			return err
		}
	}
	ctx = context.WithoutCancel(ctx)
	c.result.Defects = append(c.result.Defects, errorsOfGPU(ctx, c.result.UUID).since(before)...)
	err = c.result.read(c.out)
	if c.python != "" {
		err = errors.Join(err, c.result.torch(c.out))
	}
	if err != nil {
		fmt.Fprintln(c.screen, err) // file missing because an earlier step failed
		c.result.Missing = strings.Split(err.Error(), "\n")
	}
	judged := c.result.judge()
	if err := c.result.write(c.out); err != nil {
		return err
	}
	fmt.Fprintf(c.screen, "\n== summary, in %s\n%s", c.out, c.result.summary())
	archive, err := pack(c.out)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.screen, "\nto send: %s (names of this machine are left out: OMITTED.txt in it)\n", archive)
	return judged
}

// doctor runs vprof doctor to find the GPU to check.
func (c *check) doctor(ctx context.Context) error {
	vprof := filepath.Join(c.bin, "vprof")
	asked, done := context.WithTimeout(ctx, 2*time.Minute)
	defer done()
	out, err := exec.CommandContext(asked, vprof, "doctor", "--format", "json").Output()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		return err
	}
	if err := os.WriteFile(filepath.Join(c.out, "doctor.json"), out, 0o644); err != nil {
		return err
	}
	c.result = result{Schema: schema, Started: time.Now().UTC().Truncate(time.Second)}
	if err := c.result.diagnose(out); err != nil {
		return err
	}
	if err := c.do(ctx, "doctor", vprof, "doctor"); err != nil {
		return err
	}
	if s := (step{Exit: 1}); ended != nil {
		// A GPU that computes wrong results is a GPU to check.
		if s.classify(string(out)); s.Verdict == defect {
			return &verdictError{defect, []string{"the doctor says what, in " + c.out}}
		}
		return noGPU{fmt.Errorf("no usable GPU: %s says why", filepath.Join(c.out, "doctor.txt"))}
	}
	return nil
}

// nvidiaSMI writes nvidia-smi's report about the GPUs, if that program is installed.
func (c *check) nvidiaSMI(ctx context.Context) {
	out, err := exec.CommandContext(ctx, "nvidia-smi", "-q").CombinedOutput()
	if err == nil {
		_ = os.WriteFile(filepath.Join(c.out, "nvidia-smi.txt"), out, 0o644) // optional file
	}
}

// largest returns a batch size of redimnet-b2 that fits into a GPU's memory in bytes. It needs about 240 MiB per
// sample; the rest is left for the context and a display.
func largest(memory int64) int {
	const sample, rest, most = 240 << 20, 5 << 28, 48
	if memory == 0 {
		return most
	}
	return int(min(max((memory-rest)/sample, sweepBatches+1), most))
}

// batches returns eight batch sizes up to the largest. The smallest is above 1, which batch norm refuses.
func batches(memory int64) string {
	var list []string
	for i := range sweepBatches {
		list = append(list, strconv.Itoa(max(2, largest(memory)*(i+1)/sweepBatches)))
	}
	return strings.Join(list, ",")
}

// steps returns the commands to run, each with its name first.
func (c *check) steps() [][]string {
	vprof, tests := filepath.Join(c.bin, "vprof"), filepath.Join(c.bin, "cuda.test")
	file := func(name string) string { return filepath.Join(c.out, name) }
	sweep := func(name string, args ...string) []string {
		return append([]string{
			name, vprof, "sweep", "--device", "cuda:0", "--quiet", "--export",
			file(name + ".json"),
		}, args...)
	}
	calibrate := []string{
		"calibrate", vprof, "calibrate", file("sweep.json"), "--output", file("coefficients.yaml"),
		"--export", file("calibration.json"),
	}
	if c.result.Simulated {
		calibrate = append(calibrate, "--allow-simulated")
	}
	return [][]string{
		{"tests", tests, "-test.v", "-test.run", "^TestReal", "-test.timeout", "10m"},
		{"kernels", tests, "-test.run", "^$", "-test.bench", "^BenchmarkReal", "-test.benchtime", "50x"},
		sweep("sweep", "--model", "redimnet-b2", "--stage", "full", "--batch", batches(c.result.memory), "--warm-up",
			"0", "--repeat", "1"),
		calibrate,
		sweep("sweep-expandable", "--model", "redimnet-b2", "--batch", "16,64", "--alloc-conf",
			"expandable_segments:True"),
		sweep("sweep-fp16", "--model", "redimnet-b2", "--amp", "fp16", "--batch", "16,64", "--repeat", "3",
			"--warm-up", "1"),
		sweep("verify", "--model", "redimnet-b0", "--batch", "8", "--verify"),
		sweep("find-max", "--model", "resnet50", "--batch", "64", "--find-max"),
		{
			"fit", vprof, "fit", "--model", "redimnet-b2", "--stage", "full", "--device", "cuda:0", "--export",
			file("fit.json"),
		},
		{
			"smoke", vprof, "smoke", "--model", "redimnet-b2", "--stage", "full", "--batch",
			strconv.Itoa(min(16, largest(c.result.memory)/2)), "--device", "cuda:0", "--export", file("smoke.json"),
		},
	}
}

// stepLimit is the time after which a step is killed. The longest step takes a few minutes on the slowest GPUs.
var stepLimit = 20 * time.Minute

// do runs a step. Its output goes to the screen and to a file named after the step. An error means that the output was
// not written; the step's own failure is in its record.
func (c *check) do(ctx context.Context, name string, command ...string) error {
	fmt.Fprintf(c.screen, "\n== %s\n", name)
	var out bytes.Buffer
	ctx, done := context.WithTimeout(ctx, stepLimit)
	defer done()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // lets the step free the GPU
	cmd.WaitDelay = time.Minute                                           // then it is killed
	cmd.Env = os.Environ()
	if !c.result.Simulated {
		cmd.Env = append(cmd.Env, "VPROF_REAL_GPU=1") // tells the tests that there is a GPU
	}
	cmd.Stdout = io.MultiWriter(c.screen, &out)
	cmd.Stderr = cmd.Stdout
	began := time.Now()
	err := cmd.Run()
	s := step{
		Name: name, Command: append([]string{filepath.Base(command[0])}, command[1:]...),
		Seconds: time.Since(began).Seconds(),
	}
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		s.Exit = ended.ExitCode()
	} else if err != nil && ctx.Err() == nil {
		return err
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		s.Exit = max(s.Exit, 1)
		fmt.Fprintf(io.MultiWriter(c.screen, &out), "gpucheck: ended after %v\n", stepLimit)
	}
	for i, word := range s.Command {
		s.Command[i] = strings.ReplaceAll(word, c.out+string(filepath.Separator), "")
	}
	s.classify(out.String())
	if s.Verdict == defect {
		c.result.Defects = append(c.result.Defects, s.Name+": "+lastLine(out.String()))
	}
	c.result.Steps = append(c.result.Steps, s)
	return os.WriteFile(filepath.Join(c.out, name+".txt"), out.Bytes(), 0o644)
}

// diagnose reads the machine's details from the output of vprof doctor.
func (r *result) diagnose(doctor []byte) error {
	var d struct {
		Driver, CUDA string
		GPUs         []struct {
			Name      string
			UUID      string
			Memory    int64 `json:"memory_bytes"`
			Simulated bool
		}
	}
	if err := json.Unmarshal(doctor, &d); err != nil {
		return fmt.Errorf("vprof doctor: %w", err)
	}
	r.Driver, r.CUDA = d.Driver, d.CUDA
	r.Simulated = strings.Contains(d.Driver, simulatedDriver)
	if len(d.GPUs) > 0 {
		g := d.GPUs[0]
		r.GPU, r.UUID, r.Simulated, r.memory = g.Name, g.UUID, r.Simulated || g.Simulated, g.Memory
	}
	return nil
}
