package script_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/script"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
)

// here is the folder of the tests, which they leave.
var here = func() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	return dir
}()

// trial runs the test's training script with a PyTorch that only counts, and returns what
// came of it and what it printed.
func trial(t *testing.T, c script.Command, args ...string) (*script.Outcome, string) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil || runtime.GOOS != "linux" {
		t.Skip("needs Linux with python3")
	}
	t.Setenv("PYTHONPATH", filepath.Join(here, "testdata/faketorch"))
	t.Setenv("PYTHONDONTWRITEBYTECODE", "1")
	if os.Getenv("VPROF_SEEK") == "" {
		t.Setenv("VPROF_SEEK", "0") // the test's script has lines that evaluate and save
	}
	t.Setenv("TMPDIR", t.TempDir())
	t.Chdir(t.TempDir())
	var out bytes.Buffer
	c.Args = append([]string{python, filepath.Join(here, "testdata/scripts/train.py")}, args...)
	c.Stdout, c.Stderr = &out, &out
	if c.GPU.Name == "" {
		c.GPU, err = device.Lookup("rtx-3090")
		require.NoError(t, err)
	}
	o, err := script.Run(t.Context(), c)
	require.NoError(t, err, "%s", &out)
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	require.NoError(t, err)
	require.Empty(t, left, "nothing is left behind")
	return o, out.String()
}

func TestTrainingEndsAfterTheStepsThatAreAskedFor(t *testing.T) {
	for _, c := range []struct {
		name  string
		args  []string
		steps int
		until string
		want  []int
		ended string
	}{
		{"three steps", nil, 3, "", []int{3}, "steps"},
		{"steps that the scaler leaves out count", []string{"skip"}, 2, "", []int{2}, "steps"},
		{"all", nil, 0, "", []int{40}, "exit"},
		{"to its own end", nil, 3, "end", []int{40}, "exit"},
		{"an optimizer that never steps is not waited for", []string{"never"}, 2, "", []int{20}, "steps"},
		{"a program around it fails", []string{"within"}, 2, "", []int{2}, "steps"},
		{"one that steps within backward", []string{"within backward"}, 2, "", []int{2}, "steps"},
		{"without an optimizer backward passes count", []string{"bare"}, 2, "", []int{20}, "steps"},
		{"one that wraps another is not", []string{"wrapped"}, 2, "", []int{2}, "steps"},
		{"to the evaluation", []string{"eval"}, 2, "eval", []int{5}, "eval"},
		{"to the first file", []string{"save"}, 2, "save", []int{1}, "save"},
	} {
		o, said := trial(t, script.Command{Steps: c.steps, Until: c.until}, c.args...)
		require.Equal(t, script.Fits, o.Kind(), "%s: %s", c.name, said)
		require.Equal(t, c.want, o.Steps(), c.name)
		require.Equal(t, c.ended, o.EndEvent().Reason, c.name)
		if slices.Contains(c.args, "within backward") {
			require.Equal(t, 2, strings.Count(said, "backward goes on"), "the pass is not left before its end")
		}
	}
}

func TestPeaksPhasesAndClasses(t *testing.T) {
	t.Setenv("FAKE_SECOND", "700")
	o, said := trial(t, script.Command{Steps: 2}, "eval")
	require.Contains(t, said, "iteration 0 peak 5564\n", "the script sees its own peak though phases reset it")
	r, err := o.Report(t.Context())
	require.NoError(t, err)
	run := r.Points[0].Run
	require.EqualValues(t, 6564, run.Requested, "weights, buffer, state, batch, activations, gradients")
	var names []string
	for _, p := range run.Phases {
		names = append(names, p.Name)
	}
	require.Equal(t, []string{
		"set-up", "forward", "backward", "optimizer", "forward", "backward", "optimizer",
	}, names, "nothing after the last step")
	require.Less(t, run.Phases[1].Allocated, run.Phases[3].Allocated,
		"no optimizer's state at the end of the first forward")
	require.EqualValues(t, 1064, run.Phases[0].PeakAllocated)
	classes := map[string]int64{}
	for _, c := range run.Classes {
		classes[c.Name] = c.Bytes
	}
	require.Equal(t, int64(1000), classes["optimizer state"]/1024*1000, "rounded up as the allocator does")
	require.Contains(t, r.Script.Lines[0].Name, "train.py:")
	require.Equal(t, int64(3584), classes["batch data"], "also in a pool of CUDA graphs")
	require.Zero(t, classes["graph pools"], "only what has no other class")
	require.Equal(t, &report.PrivatePools{Count: 1, Bytes: 8192}, r.Script.Private, "not the default pool")
	require.Equal(t, []report.OtherGPUMemory{{GPU: 1, Allocated: 700, Reserved: 700}}, r.Script.OtherGPUs,
		"not what lies idle")
}

// Where one line of the user holds most, the lines of libraries that it calls are named, with the paths of their
// modules.
func TestLinesOfLibrariesBelow(t *testing.T) {
	folder := filepath.Join(here, "testdata/site-packages")
	o, said := trial(t, script.Command{Steps: 2, Folders: []string{folder}}, "library")
	require.Equal(t, script.Fits, o.Kind(), said)
	r, err := o.Report(t.Context())
	require.NoError(t, err)
	require.Equal(t, "layers.* blocks.py:8:forward", r.Script.CallersBelow[0].Name)
	require.EqualValues(t, 4*90000, r.Script.CallersBelow[0].Bytes,
		"of two steps, since a variable holds the last one's")
	o, _ = trial(t, script.Command{Steps: 2})
	r, err = o.Report(t.Context())
	require.NoError(t, err)
	require.Empty(t, r.Script.CallersBelow, "the user's own code")
}

// Where lines of the script evaluate or save, steps go on to them; ones that do not run are named.
func TestStepsGoOnToEvaluationAndSaving(t *testing.T) {
	t.Setenv("VPROF_SEEK", "100")
	o, said := trial(t, script.Command{Steps: 3, Longest: time.Minute}, "eval", "save")
	require.Equal(t, []int{40}, o.Steps(), "nothing tells that later steps are no larger: %s", said)
	r, err := o.Report(t.Context())
	require.NoError(t, err)
	require.Empty(t, r.Script.UnrunCode)
	t.Setenv("VPROF_SEEK", "0")
	o, _ = trial(t, script.Command{Steps: 3, Longest: time.Minute}, "eval", "save")
	r, err = o.Report(t.Context())
	require.NoError(t, err)
	require.Regexp(t, `train\.py:\d+$`, r.Script.UnrunCode["eval"])
	require.Contains(t, fmt.Sprint(r.Sheets()), "--until eval goes on to it")
}

// Long parts without events say what they do.
func TestLongSilentPartsSayWhatTheyDo(t *testing.T) {
	t.Setenv("VPROF_SILENCE", "0.1")
	var said []string
	_, _ = trial(t, script.Command{Steps: 1, OnEvent: func(e script.Event) {
		if e.Name == "busy" {
			said = append(said, e.Text)
		}
	}}, "slow")
	require.NotEmpty(t, said)
	require.Regexp(t, `^runs train\.py:\d+$`, said[0])
}

// What is said of one GPU of several that a process uses is said of the fullest.
func TestFiguresAreOfTheFullestGPU(t *testing.T) {
	t.Setenv("FAKE_SECOND", "9000")
	o, said := trial(t, script.Command{Steps: 2})
	require.Equal(t, script.Fits, o.Kind(), said)
	r, err := o.Report(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, r.Script.GPU)
	require.EqualValues(t, 9000, r.Points[0].Run.Reserved)
	for _, p := range r.Points[0].Run.Phases {
		require.EqualValues(t, 9000, p.PeakReserved, p.Name)
	}
	require.Len(t, r.Script.OtherGPUs, 1)
	require.Zero(t, r.Script.OtherGPUs[0].GPU)
}

// A phase that begins when the script has deleted its optimizer does not belong to the first step.
func TestPhasesAfterTheOptimizerIsGone(t *testing.T) {
	o, said := trial(t, script.Command{}, "released")
	require.Equal(t, script.Fits, o.Kind(), said)
	r, err := o.Report(t.Context())
	require.NoError(t, err)
	phases := r.Points[0].Run.Phases
	require.Equal(t, o.Steps()[0]+1, phases[len(phases)-1].Step)
	require.NotZero(t, phases[1].Allocated, "of the first forward, and not of the end")
}

// A checkpoint that is absent has the shapes of what loads it. What has no shape is named with its line.
func TestPlaceholdersOfWeights(t *testing.T) {
	t.Setenv("HF_TOKEN", "secret")
	t.Setenv("USER_SETTING", "1")
	without := script.Without{Weights: true}
	o, said := trial(t, script.Command{Steps: 2, Without: without}, "resume")
	require.Equal(t, script.Fits, o.Kind(), said)
	require.Contains(t, said, "uses no network: 192.0.2.1 was not asked")
	r, err := o.Report(t.Context())
	require.NoError(t, err)
	require.Equal(t,
		[]report.Replaced{{Kind: "weights", Name: "last.pt", By: "the shapes of the module that loads it"}},
		r.Script.Replaced)
	o, said = trial(t, script.Command{Steps: 2, Without: without}, "whole")
	require.Equal(t, script.Failed, o.Kind())
	require.Regexp(t, `train\.py:\d+ requires eval of whole\.pt, which is absent: put the file there`,
		o.MissingObjectText(), said)
	o, _ = trial(t, script.Command{Steps: 2}, "resume")
	require.Equal(t, script.Failed, o.Kind(), "nothing is replaced that nobody asked for")
}

func TestFailuresHaveTheirKind(t *testing.T) {
	for _, c := range []struct {
		args []string
		want script.Kind
		says string
	}{
		{[]string{"small"}, script.OutOfMemory, "OutOfMemoryError"},
		{[]string{"fail"}, script.Failed, "no such luck"},
	} {
		o, _ := trial(t, script.Command{Steps: 3}, c.args...)
		require.Equal(t, c.want, o.Kind(), c.args)
		r, err := o.Report(t.Context())
		require.NoError(t, err)
		require.Contains(t, r.Script.Traceback, c.says)
		require.Equal(t, 1, r.Script.ExitCode)
	}
	o, _ := trial(t, script.Command{Steps: 3}, "small", "catch")
	require.Equal(t, script.Fits, o.Kind())
	require.EqualValues(t, 1, o.EndEvent().OOMs)
	require.EqualValues(t, 1000, o.OOM.Want)
	require.Equal(t, "backward", o.OOM.Phase)
	o, _ = trial(t, script.Command{Timeout: 300 * time.Millisecond}, strings.Fields("save")...)
	require.Contains(t, []script.Kind{script.TimedOut, script.Fits}, o.Kind())
}

func TestTrainingOnTheHostIsNone(t *testing.T) {
	o, _ := trial(t, script.Command{}, "host")
	require.Equal(t, script.Untrained, o.Kind())
	require.Contains(t, o.ReachedText(), "an optimizer stepped on the CPU")
}

func TestNvidiaSmiKnowsTheGPU(t *testing.T) {
	_, said := trial(t, script.Command{Stubs: t.TempDir(), Steps: 1}, "smi")
	require.Contains(t, said, "NVIDIA GeForce RTX 3090, 24259\n")
}

func TestCrashesOfNativeCodeNameTheLine(t *testing.T) {
	o, _ := trial(t, script.Command{Steps: 3}, "crash")
	require.Equal(t, script.Failed, o.Kind())
	r, err := o.Report(t.Context())
	require.NoError(t, err)
	require.Equal(t, "Segmentation fault: in native code", r.Script.Error)
	require.Contains(t, r.Script.Traceback, "train.py")
	require.Equal(t, 128+int(syscall.SIGSEGV), r.Script.ExitCode)
}

func TestPyTorchThatCannotBeUsed(t *testing.T) {
	for _, c := range []struct {
		cuda string
		run  script.Command
		want script.Kind
	}{
		{"", script.Command{}, script.NoCUDA},
		{"11.8", script.Command{Stubs: t.TempDir()}, script.NoCUDA},
		{"11.8", script.Command{Device: "cuda:0"}, script.Fits},
		{"13.0", script.Command{Device: "cuda:9"}, script.NoGPU},
	} {
		t.Setenv("FAKE_CUDA", c.cuda)
		c.run.Steps = 1
		o, said := trial(t, c.run)
		require.Equal(t, c.want, o.Kind(), said)
	}
	t.Setenv("FAKE_CUDA", "13.2")
	o, _ := trial(t, script.Command{Steps: 1, Device: "cuda:0", Others: 1000})
	r, err := o.Report(t.Context())
	require.NoError(t, err)
	require.Contains(t, r.Warnings[0].What, "PyTorch 2.99.0 is not among the releases")
	require.False(t, r.Points[0].Run.Simulated)
	run := r.Points[0].Run
	require.Equal(t, run.Reserved+4096-1000, run.Device, "what the driver says is used, less what others hold")
}

// On a GPU, ten steps are timed after the recorded steps and three to warm up, data loading apart.
func TestStepsOnAGPUAreTimed(t *testing.T) {
	o, said := trial(t, script.Command{Steps: 3, Device: "cuda:0"}, "rows")
	require.Equal(t, []int{3}, o.Steps(), said)
	require.Equal(t, 16, strings.Count(said, "batch "), "three recorded, three to warm up, ten timed")
	r, err := o.Report(t.Context())
	require.NoError(t, err)
	require.Equal(t, &report.Timing{Seconds: 0.02, Least: 0.02, Most: 0.02, Loading: 0.005}, r.Points[0].Run.Step)
	var table strings.Builder
	require.NoError(t, report.Write(&table, report.Table, r))
	require.Contains(t, table.String(),
		"a step took 20.0 ms (median of ten or more, 20.0 to 20.0; measured), and 5.00 ms")

	for name, c := range map[string]script.Command{
		"simulated": {Steps: 3}, "its own end comes first": {Steps: 35, Device: "cuda:0"},
	} {
		o, _ = trial(t, c)
		r, err = o.Report(t.Context())
		require.NoError(t, err)
		require.Nil(t, r.Points[0].Run.Step, name)
	}
}

func TestWhatIsSavedGoesElsewhere(t *testing.T) {
	o, said := trial(t, script.Command{Steps: 3}, "save")
	require.Equal(t, script.Fits, o.Kind(), said)
	require.Len(t, o.DivertedFiles(), 2)
	require.Equal(t, "m.pt", filepath.Base(o.DivertedFiles()[1]), "which m.part became")
	require.NoFileExists(t, "m.pt")
	_, _ = trial(t, script.Command{Steps: 3, KeepFiles: true}, "save")
	require.FileExists(t, "m.pt")
}

// The script finds again what went elsewhere, by whatever function, and what was there before is as it was.
func TestFilesAreFoundAgainAndOthersSpared(t *testing.T) {
	o, said := trial(t, script.Command{Steps: 3}, "files")
	require.Equal(t, script.Fits, o.Kind(), said)
	var left []string
	require.NoError(t, filepath.WalkDir(".", func(path string, _ os.DirEntry, err error) error {
		left = append(left, path)
		return err
	}))
	require.Equal(t, []string{
		".", "cache", "cache/inner", "cache/inner/rows", "fresh.txt", "log.txt", "real.pt",
	}, left, said)
	for _, path := range o.DivertedFiles() {
		require.NotEmpty(t, filepath.Ext(path), "a folder was not saved")
	}
	require.Len(t, o.LeftFolders, 1, "a program that is not Python wrote there")
	require.Equal(t, "cache", filepath.Base(o.LeftFolders[0]))
	log, err := os.ReadFile("log.txt")
	require.NoError(t, err)
	require.Equal(t, "old line\n", string(log))
}

// The command and the Python processes that it has started end with vprof, even if that is killed.
func TestNothingGoesOnAfterAKill(t *testing.T) {
	if os.Getenv("VPROF_TEST_RUNS") != "" {
		gpu, err := device.Lookup("t4")
		require.NoError(t, err)
		_, err = script.Run(t.Context(), script.Command{
			Args: []string{"sh", "-c", "python3 -c 'import time; print(flush=True); time.sleep(3600)'; true"},
			GPU:  gpu, Stdout: os.Stdout,
		})
		require.NoError(t, err)
		return
	}
	if _, err := exec.LookPath("python3"); err != nil || runtime.GOOS != "linux" {
		t.Skip("needs Linux, where children are ended, with python3")
	}
	self := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	self.Env = append(os.Environ(), "VPROF_TEST_RUNS=1", "TMPDIR="+t.TempDir())
	out, err := self.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, self.Start())
	_, err = fmt.Fscanln(out)
	require.NoError(t, err, "it runs")
	require.NoError(t, self.Process.Kill())
	_, err = io.Copy(io.Discard, out) // until the last process that writes to it has ended
	require.NoError(t, err)
	_ = self.Wait() // it was killed
}

func TestProgramsThatAreNotThere(t *testing.T) {
	gpu, err := device.Lookup("t4")
	require.NoError(t, err)
	_, err = script.Run(t.Context(), script.Command{Args: []string{"program-of-nobody"}, GPU: gpu})
	require.True(t, input.IsBadInput(err))
	o, err := script.Run(t.Context(), script.Command{Args: []string{"true"}, GPU: gpu})
	require.NoError(t, err)
	require.Equal(t, script.NoCUDA, o.Kind())
	r, err := o.Report(t.Context())
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, report.WriteTable(&b, r, report.Layout{}))
}

// The longest batches of a data set that can be read by index come after the steps; else the result says why later ones
// are not known.
func TestTheLongestBatchesAreTrainedOn(t *testing.T) {
	for _, c := range []struct {
		args   []string
		longer []report.LargerBatch
		why    string
		read   int
	}{
		{[]string{"rows"}, []report.LargerBatch{{Shape: []int{4, 900}, Before: []int{4, 22}}}, "", 600},
		{[]string{"rows", "alike"}, nil, "256 samples of one size were taken for all", 256},
		{[]string{"rows", "stream"}, nil, "the data set cannot be read by index", 0},
		{[]string{"rows", "unreadable"}, nil, "OSError: no such sample", 101},
		{nil, nil, "no DataLoader of PyTorch gave the batches", 0},
	} {
		o, said := trial(t, script.Command{Steps: 3, Longest: time.Minute}, c.args...)
		require.Equal(t, script.Fits, o.Kind(), said)
		r, err := o.Report(t.Context())
		require.NoError(t, err)
		seen := r.Script.Coverage
		require.Equal(t, c.longer, seen.Longer, said)
		require.Equal(t, c.why, seen.Why)
		require.Equal(t, c.read, seen.Read)
		require.Equal(t, len(c.longer) > 0, strings.Contains(said, "batch 4 900\n"), said)
		if len(c.longer) > 0 {
			require.Equal(t, 150, seen.Batches)
			require.Greater(t, r.Points[0].Run.Requested, int64(36000), "of the longest batch")
			require.Contains(t, r.Sheets()[0].Answer[1],
				"the largest batch that the data set has, 4 x 900 (before: 4 x 22)")
		}
	}
	// With --steps, nothing else is run.
	o, said := trial(t, script.Command{Steps: 3}, "rows")
	require.NotContains(t, said, "900")
	r, err := o.Report(t.Context())
	require.NoError(t, err)
	require.Nil(t, r.Script.Coverage)
}

// Memory that every step leaves behind is named with its line and its end. Warm-up is none.
func TestGrowthIsNamed(t *testing.T) {
	for _, c := range []struct {
		args  []string
		steps []int
	}{{[]string{"grow"}, []int{4}}, {[]string{"grow", "warm"}, []int{5}}, {[]string{"grow", "uneven"}, []int{12}}} {
		o, said := trial(t, script.Command{Steps: 3, Longest: time.Minute}, c.args...)
		require.Equal(t, script.Fits, o.Kind(), said)
		require.Equal(t, c.steps, o.Steps(), c.args)
		require.Equal(t, map[int]int64{1: 2000, 2: 0}[len(c.args)], o.EndEvent().Growth)
		require.Equal(t, slices.Contains(c.args, "uneven"), o.EndEvent().Uneven)
	}
	card := device.GPU{Name: "card", Memory: 1 << 16}
	o, _ := trial(t, script.Command{Steps: 3, Longest: time.Minute, GPU: card}, "grow")
	r, err := o.Report(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2000, r.Script.Growth.Bytes)
	require.InDelta(t, (1<<16)/2000, r.Script.Growth.FullBatchSteps, 20)
	require.Contains(t, r.Script.Growth.Lines[0].Name, "train.py:")
	require.Contains(t, r.Sheets()[0].Answer[0], "does not fit for long: it grows by 1.95 KiB a step")
	for args, through := range map[string]string{
		"grow":         `the list kept \(.*train\.py:\d+\)`,
		"grow uneven":  `the list kept \(.*train\.py:\d+\)`,
		"grow closure": `the dict keeper\.seen \(.*train\.py:\d+\), which the hook keeper\.<locals>\.hook fills`,
		"grow object":  `the deque keeper\.rows \(.*train\.py:\d+\)`,
		"grow cache":   `the functools\.lru_cache table \(.*train\.py:\d+\)`,
		"grow graph":   `total \(.*train\.py:\d+\), to whose graph every step adds`,
	} {
		o, said := trial(t, script.Command{Steps: 3, Longest: time.Minute}, strings.Fields(args)...)
		require.Regexp(t, `^`+through, o.EndEvent().Through, said)
	}
	smoke := script.Smoke(r, planner.Budget{Margin: planner.DefaultMargin}, 1)
	require.False(t, smoke.Safe)
	// The loop of 40 steps is over before a larger GPU is full.
	o.GPU.Memory = 1 << 20
	r, err = o.Report(t.Context())
	require.NoError(t, err)
	require.False(t, r.Script.Growth.Fills())
	require.EqualValues(t, 36*2000, r.Script.Growth.RestBytes)
	require.Contains(t, r.Sheets()[0].Answer[1], "it grows by 1.95 KiB a step up to step 40")
	smoke = script.Smoke(r, planner.Budget{Margin: planner.DefaultMargin}, 1)
	require.EqualValues(t, r.Points[0].Run.Reserved+36*2000, smoke.Checks[len(smoke.Checks)-1].Reserved)
}

// Where what has grown is freed soon, as at an epoch's end, steps go on to that, and see what is made of it.
func TestGrowthIsFollowedToItsEnd(t *testing.T) {
	t.Setenv("VPROF_SEEK", "100")
	card := device.GPU{Name: "card", Memory: 1 << 20}
	o, said := trial(t, script.Command{Steps: 3, Longest: time.Minute, GPU: card}, "grow", "rounds")
	require.Equal(t, []int{12}, o.Steps(), said)
	r, err := o.Report(t.Context())
	require.NoError(t, err)
	require.Equal(t, 10, r.Script.Growth.Steps)
	require.Zero(t, r.Script.Growth.RestBytes)
	require.Greater(t, r.Points[0].Run.Allocated, int64(10*2000+50000), "the tensor at the end of a round")
	require.Contains(t, r.Sheets()[0].Answer[1], "it grows by 1.95 KiB a step up to step 10, held by the list kept")
}

// A second run tries changes where the script ended by itself before that.
func TestChangesAreTriedInASecondRun(t *testing.T) {
	t.Setenv("VPROF_SEEK", "100")
	o, said := trial(t, script.Command{Steps: 3, Longest: time.Minute}, "foreach")
	require.Equal(t, []int{40}, o.Steps(), said)
	r, err := o.Report(t.Context())
	require.NoError(t, err)
	require.Empty(t, r.Script.Remedies)
	require.NoError(t, o.TryChanges(t.Context()))
	r, err = o.Report(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int{40}, r.Script.Steps, "of the first run")
	require.Equal(t, "Adam with foreach=False", r.Script.Remedies[0].What)
	require.EqualValues(t, 6000, r.Script.Remedies[0].Saves, "down to the peak of backward")
}

// A script without a backward pass runs again without graphs.
func TestGraphsThatNoBackwardPassUses(t *testing.T) {
	o, said := trial(t, script.Command{Steps: 3, Longest: time.Minute}, "graphs")
	require.Equal(t, script.Fits, o.Kind(), said)
	require.NoError(t, o.TryChanges(t.Context()))
	r, err := o.Report(t.Context())
	require.NoError(t, err)
	require.Contains(t, r.Script.Remedies[0].What, "torch.no_grad()")
	require.EqualValues(t, 3*4900, r.Script.Remedies[0].Saves)
}

// A command that fits is as safe as its smoke test says.
func TestRunsAreJudgedAsSmokeTestsAre(t *testing.T) {
	o, _ := trial(t, script.Command{Steps: 3})
	r, err := o.Report(t.Context())
	require.NoError(t, err)
	need := r.Points[0].Run.Device
	for memory, unsafe := range map[int64]report.Reason{2*need + 1<<30: "", need + 200<<20: "over-share"} {
		o.GPU.Memory = memory
		r, err := o.Report(t.Context())
		require.NoError(t, err)
		require.Equal(t, unsafe, r.Script.Unsafe)
		require.Equal(t, unsafe == "", script.Smoke(r, planner.Budget{Margin: planner.DefaultMargin}, 1).Safe)
		require.Equal(t, unsafe != "", strings.Contains(r.Sheets()[0].Answer[0], "not safe"))
	}
}

// After the last step the epoch ends early, so that evaluation and saving are seen. What the script makes before it
// saves belongs to saving, and a state that is not saved to training. A script that fails in its short epoch has been
// seen. Modules that import what they stand for when they are asked are not asked.
func TestEvaluationAndSavingFollowTheSteps(t *testing.T) {
	for _, c := range []struct {
		args       string
		evaluation int64
		saving     int64
		ended      string
	}{
		{"rows alike", 0, 0, "shortened"},
		{"rows alike ema", 0, 0, "shortened"},
		{"rows alike validate ema", 90000, 70000, "shortened"},
		{"rows alike validate average", 90000, 70000, "shortened"},
		{"rows alike broken", 0, 0, "shortened"},
		{"rows alike lazy", 0, 0, "shortened"},
	} {
		o, said := trial(t, script.Command{Steps: 3, Longest: time.Minute}, strings.Fields(c.args)...)
		require.Equal(t, script.Fits, o.Kind(), said)
		r, err := o.Report(t.Context())
		require.NoError(t, err)
		require.Equal(t, c.ended, r.Script.Ended, said)
		require.Equal(t, []int{3}, r.Script.Steps)
		peaks := map[string]int64{}
		for _, p := range r.Points[0].Run.Phases {
			peaks[p.Name] = max(peaks[p.Name], p.PeakAllocated)
		}
		for phase, bytes := range map[string]int64{"evaluation": c.evaluation, "saving": c.saving} {
			if bytes == 0 {
				require.NotContains(t, peaks, phase, c.args)
				continue
			}
			require.GreaterOrEqual(t, peaks[phase], bytes, c.args)
		}
		require.Less(t, peaks["forward"]-c.saving, int64(50000),
			"but for what the script still holds when it trains again")
	}
	// With --steps, nothing else is run; what follows the last step until the next still does.
	o, said := trial(t, script.Command{Steps: 3}, "rows", "alike", "validate")
	require.Equal(t, "steps", o.EndEvent().Reason)
	require.Contains(t, said, "batch 4 20\nbatch 4 20\nbatch 4 20\n")
	require.NotContains(t, said, "epoch ends")
}
