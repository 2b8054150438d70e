package profile_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	pprof "github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/show/profile"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/redimnet"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/tools/golden"
	"github.com/vprof/vprof/tools/toy"
)

func residuals(planner.ResidualSubject) (allocated, reserved planner.Residual, err error) { return }

// profiled returns the profile of a model on a GPU of so much memory.
func profiled(t testing.TB, m models.Model, batch int, memory int64) *profile.Profile {
	setup, err := step.New(m, m.Default, step.Evidence{Residuals: residuals})
	require.NoError(t, err)
	gpu, err := device.Lookup("rtx-5060-ti")
	require.NoError(t, err)
	gpu.Memory = memory
	p, err := setup.Profile(t.Context(), gpu, batch)
	require.NoError(t, err)
	return p
}

func redimnetB2(t testing.TB) *profile.Profile {
	for _, m := range redimnet.Models() {
		if m.Name == "redimnet-b2" {
			m.Default.Stage = "full"
			return profiled(t, m, 8, 16<<30)
		}
	}
	t.Fatal("there is no redimnet-b2")
	return nil
}

// all returns a run that fits, one that does not, and one of a real model.
func all(t *testing.T) map[string]*profile.Profile {
	return map[string]*profile.Profile{
		"toy":  profiled(t, toy.Model(), 8, 16<<30),
		"oom":  profiled(t, toy.Model(), 64, 1<<30),
		"real": redimnetB2(t),
	}
}

func TestClassesOfEachPointSumToItsAllocatedBytes(t *testing.T) {
	for name, p := range all(t) {
		series := p.ByClass()
		require.Len(t, series, len(p.Run.Timeline), name)
		highest := int64(0)
		for i, classes := range series {
			require.Equal(t, p.Run.Timeline[i].Usage.Allocated, classes.Total(), "%s, point %d", name, i)
			for _, bytes := range classes {
				require.GreaterOrEqual(t, bytes, int64(0), name)
			}
			if highest < classes.Total() {
				highest = classes.Total()
				if p.Run.Timeline[i].Instruction == p.Run.Peak.Instruction {
					require.Equal(t, p.Run.Peak.Allocated, classes, name)
				}
			}
		}
		require.Equal(t, p.Run.Max.Allocated, highest, name)
	}
}

func TestPeakStepHoldsThePeakAndPhasesTileTheRun(t *testing.T) {
	for name, p := range all(t) {
		step, from, to := p.PeakStep()
		require.Equal(t, p.Run.Peak.Phase.Step, step, name)
		require.LessOrEqual(t, from, p.Run.Peak.Instruction, name)
		require.Less(t, p.Run.Peak.Instruction, to, name)
		next := 0
		for _, s := range p.Spans() {
			require.Equal(t, next, s.From, name)
			next = s.To
		}
		for _, in := range p.Program.Instructions[next:p.End()] { // what ends with the model
			require.Equal(t, program.Free, in.Kind, name)
		}
		require.Equal(t, p.Run.OOM != nil, name == "oom")
	}
}

func TestPprofSumsToThePeak(t *testing.T) {
	for name, p := range all(t) {
		var b bytes.Buffer
		require.NoError(t, p.WritePprof(&b))
		read, err := pprof.Parse(&b)
		require.NoError(t, err)
		var sum [3]int64
		classes := map[string]int64{}
		for _, s := range read.Sample {
			for i, v := range s.Value {
				sum[i] += v
			}
			classes[s.Label["class"][0]] += s.Value[2]
			require.Equal(t, p.Case.Model, s.Location[len(s.Location)-1].Line[0].Function.Name)
		}
		peak := p.Run.Peak
		require.Equal(t, [3]int64{int64(len(peak.Live)), peak.Usage.Requested, peak.Usage.Allocated}, sum, name)
		for class, bytes := range classes {
			require.Positive(t, bytes, class)
		}
	}
}

// The real tool shows the modules and the same total.
func TestGoToolPprofReadsTheProfile(t *testing.T) {
	p := redimnetB2(t)
	path := filepath.Join(t.TempDir(), "peak.pb.gz")
	var b bytes.Buffer
	require.NoError(t, p.WritePprof(&b))
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
	top, err := exec.Command("go", "tool", "pprof", "-top", "-cum", "-unit=B", path).Output()
	require.NoError(t, err)
	require.Contains(t, string(top), "Type: allocated")
	require.Regexp(t, `of `+strconv.FormatInt(p.Run.Peak.Usage.Allocated, 10)+`B total`, string(top))
	require.Regexp(t, `(?m) redimnet-b2$`, string(top))
	require.Regexp(t, `(?m) body\.stages\.0$`, string(top))
	tags, err := exec.Command("go", "tool", "pprof", "-tags", "-unit=B", path).Output()
	require.NoError(t, err)
	require.Contains(t, string(tags), "activations")
}

func TestPerfettoTraceFollowsTheSchemaAndItsCountersPeakRight(t *testing.T) {
	text, err := os.ReadFile("testdata/trace-event.schema.json")
	require.NoError(t, err)
	var parsed jsonschema.Schema
	require.NoError(t, json.Unmarshal(text, &parsed))
	schema, err := parsed.Resolve(nil)
	require.NoError(t, err)
	for name, p := range all(t) {
		var b bytes.Buffer
		require.NoError(t, p.WritePerfetto(&b))
		var document any
		require.NoError(t, json.Unmarshal(b.Bytes(), &document))
		require.NoError(t, schema.Validate(document), name)

		var trace struct {
			TraceEvents []struct {
				Ph, Name string
				Ts       float64
				Args     map[string]json.RawMessage
			}
		}
		require.NoError(t, json.Unmarshal(b.Bytes(), &trace))
		var highest, reserved int64
		last := 0.0
		for _, e := range trace.TraceEvents {
			if e.Ph != "C" {
				continue
			}
			require.GreaterOrEqual(t, e.Ts, last, name)
			last = e.Ts
			var sum int64
			for _, raw := range e.Args {
				var n int64
				require.NoError(t, json.Unmarshal(raw, &n))
				sum += n
			}
			if e.Name == "allocated bytes" {
				highest = max(highest, sum)
			} else {
				reserved = max(reserved, sum)
			}
		}
		require.Equal(t, p.Run.Max.Allocated, highest, name)
		require.Equal(t, p.Run.Max.Reserved, reserved, name)
	}
}

func TestMemoryVizIsAsRecorded(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, profiled(t, toy.Model(), 8, 16<<30).WriteMemoryViz(&b))
	golden.Equal(t, "testdata/toy.pickle", b.Bytes())
}

// checkSnapshot reads a snapshot as users do. With PyTorch's own module it adds
// up segments and tells the trace; without, Python's pickle has to do.
const checkSnapshot = `
import importlib.util, json, os, pickle, sys
snapshot = pickle.load(open(sys.argv[1], "rb"))
live = sum(b["size"] for s in snapshot["segments"] for b in s["blocks"] if b["state"] == "active_allocated")
now = 0
for e in snapshot["device_traces"][0]:
    now += {"alloc": e["size"], "free_completed": -e["size"]}.get(e["action"], 0)
torch = importlib.util.find_spec("torch")
found = torch is not None and torch.submodule_search_locations
if found:
    path = os.path.join(list(found)[0], "cuda", "_memory_viz.py")
    spec = importlib.util.spec_from_file_location("memory_viz", path)
    viz = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(viz)
    viz.segsum(snapshot)  # asserts that blocks tile their segments
    viz.trace(snapshot)
    viz.memory(snapshot, format_flamegraph=str)
    viz.segments(snapshot, format_flamegraph=str)
    viz.trace_plot(snapshot)
print(json.dumps({
    "torch": bool(found), "live": live, "requested": now,
    "reserved": sum(s["total_size"] for s in snapshot["segments"]),
    "tiled": all(sum(b["size"] for b in s["blocks"]) == s["total_size"] for s in snapshot["segments"]),
    "ooms": sum(e["action"] == "oom" for e in snapshot["device_traces"][0]),
}))`

func TestPythonReadsTheSnapshot(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3; the golden file is checked alone")
	}
	for name, p := range all(t) {
		path := filepath.Join(t.TempDir(), "s.pickle")
		var b, stderr bytes.Buffer
		require.NoError(t, p.WriteMemoryViz(&b))
		require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
		cmd := exec.Command(python, "-c", checkSnapshot, path)
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		require.NoError(t, err, stderr.String())
		var got struct {
			Torch, Tiled                    bool
			Live, Requested, Reserved, OOMs int64
		}
		require.NoError(t, json.Unmarshal(out, &got))
		end := p.Run.Timeline[len(p.Run.Timeline)-1].Usage
		require.Equal(t, end.Allocated, got.Live, name)
		require.Equal(t, end.Requested, got.Requested, name)
		require.True(t, got.Tiled, name)
		require.Equal(t, p.Run.OOM != nil, got.OOMs == 1, name)
		if p.Run.OOM == nil {
			require.Equal(t, end.Reserved, got.Reserved, name)
		}
		t.Logf("%s: read with PyTorch's module: %v", name, got.Torch)
	}
}

// The memory_viz page knows few opcodes, and none of a later protocol.
func TestSnapshotBeginsAsProtocol2AndEnds(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, redimnetB2(t).WriteMemoryViz(&b))
	require.True(t, strings.HasPrefix(b.String(), "\x80\x02"))
	require.True(t, strings.HasSuffix(b.String(), "."))
	require.Less(t, b.Len(), 3<<20)
}
