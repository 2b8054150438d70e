package cli

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/internal/hub"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/tools/golden"
	"github.com/vprof/vprof/tools/sample"
	"github.com/vprof/vprof/tools/toy"
)

// The test binary is vprof, with a toy model besides the real ones.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"vprof": func() {
		setGCPercent()
		if os.Getenv("HF_ENDPOINT") != "" { // a script that tests what the network gives
			hub.Default = hub.FromEnvironment(func(what string) { fmt.Fprintln(os.Stderr, "vprof: fetching", what) })
		}
		if patience, err := time.ParseDuration(os.Getenv("VPROF_TEST_PATIENCE")); err == nil { // of calls of the driver
			slowCallNotice, hungCallTimeout = patience/2, patience
		}
		os.Exit(int(runInterruptibly(withToy(newSystemApp()), os.Args[1:])))
	}})
}

// withToy adds the toy model to an app.
func withToy(a *app) *app {
	a.models = func() *models.Registry {
		return all.WithFiles(models.NewRegistry([]models.Model{toy.Model()}, all.Models().All()), nil,
			a.compiledSteps)
	}
	a.residuals = toyResiduals(a.residuals)
	return a
}

// toyResiduals knows how far estimates of the toy are off: 1 % of the allocated and 2 % of the reserved bytes.
func toyResiduals(others step.ResidualsFunc) step.ResidualsFunc {
	return func(of planner.ResidualSubject) (allocated, reserved planner.Residual, err error) {
		if of.Model == "toy" {
			return planner.Residual{
					Low: -0.01, High: 0.01, Records: 50, KeptRecords: 48, Group: of.Model,
					SeparateGroup: "each",
				},
				planner.Residual{
					Low: -0.02, High: 0.02, Records: 50, KeptRecords: 49, Group: of.Model,
					SeparateGroup: "each",
				}, nil
		}
		return others(of)
	}
}

func TestScripts(t *testing.T) {
	hubServer := newHub(t)
	scripts, err := filepath.Glob("testdata/script/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, scripts)
	if testing.Short() { // several goroutines plan for GPUs at a time; package fit tests its own
		scripts = []string{"testdata/script/time.txtar"}
	}
	testscript.Run(t, testscript.Params{
		Files:         scripts,
		UpdateScripts: golden.Updating(),
		// Scripts do not fail because the machine is busy: testscript would stop running scripts when a tenth of
		// the time limit of go test is left.
		Deadline: time.Now().AddDate(1, 0, 0),
		Setup: func(e *testscript.Env) error {
			e.Setenv("SOURCE_DATE_EPOCH", "1793858400") // 2026-11-05
			e.Setenv("COLUMNS", "1000")                 // lines are matched whole
			// Whatever GPU the machine has is not there.
			e.Setenv("VPROF_LIBCUDA", "libcuda-of-nobody.so")
			e.Setenv("VPROF_LIBNVML", "libnvml-of-nobody.so")
			exported, err := filepath.Abs("../models/pt2/testdata")
			e.Setenv("EXPORTED", exported)
			snapshots, failed := filepath.Abs("../bench/observe/snapshot/testdata")
			e.Setenv("SNAPSHOTS", snapshots)
			vprof, missing := exec.LookPath("vprof")
			e.Setenv("VPROF", vprof)
			e.Setenv("HUB", hubServer.URL)
			return errors.Join(err, failed, missing)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
		// [all] commands are slow and repeat what other commands test.
		Condition: func(name string) (bool, error) {
			if name != "all" {
				return false, fmt.Errorf("there is no condition %q", name)
			}
			return sample.All(), nil
		},
	})
}

// newHub starts a server that answers as the Hugging Face hub does for two models: one is public, one gated.
func newHub(t *testing.T) *httptest.Server {
	mux := http.NewServeMux()
	config := `{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
		"num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 1000, "architectures": ["LlamaForCausalLM"]}`
	mux.HandleFunc("GET /org/open/resolve/main/config.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Repo-Commit", "0123456789012345678901234567890123456789")
		fmt.Fprint(w, config)
	})
	mux.HandleFunc("GET /org/gated/resolve/main/config.json", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer hf_secret" {
			w.WriteHeader(http.StatusForbidden)
		}
		fmt.Fprint(w, config)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// exits implements "exits CODE COMMAND...": the command must exit with the code and must not show a stack trace.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		got = ended.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("%v exits with %d, not %d", args[1:], got, want)
	}
	said := ts.ReadFile("stderr")
	if got == int(exitUsage) && !strings.HasPrefix(said, "vprof: ") {
		ts.Fatalf("%v does not say what is wrong", args[1:])
	}
	if strings.Contains(said, "goroutine ") || strings.Contains(said, "internal error") {
		ts.Fatalf("%v fails with a bug of ours", args[1:])
	}
}
