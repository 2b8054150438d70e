package kubernetes

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/vprof/vprof/bench/fleet"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/tools/golden"
)

const config = `name: lab
models: [resnet18]
boards:
  - t4
  - {gpu: a100-80, partition: Big.Ones, node-selector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}}
strategy: {at-once: 2, attempts: 4}
kubernetes:
  namespace: research
  image: registry.example/vprof:1
  claim: lab
  path: runs/lab
  cpu: "4"
  memory: 16Gi
  service-account: runner
  runtime-class: nvidia
  queue: team-a
  node-selector: {disk: ssd}
  tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]
  pod: {priorityClassName: low}
`

func folder(t *testing.T, text string) *fleet.Folder {
	c, err := fleet.Read(strings.NewReader(text), "lab.yaml")
	require.NoError(t, err)
	f := &fleet.Folder{Config: c}
	f.Name = c.Name
	for i, b := range c.GPUs {
		f.GPUs = append(f.GPUs, fleet.GPUTasks{GPUKind: b, Key: b.Key(), Jobs: 12, Tasks: 6 + i})
	}
	return f
}

// schema returns what Kubernetes 1.37 publishes of a kind, without descriptions; keys that
// it does not have are refused.
func schema(t *testing.T, kind string) *jsonschema.Resolved {
	t.Helper()
	f, err := os.Open("testdata/schema-1.37.json.gz")
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	var all jsonschema.Schema
	require.NoError(t, json.NewDecoder(z).Decode(&all))
	all.Ref = "#/$defs/" + kind
	s, err := all.Resolve(nil)
	require.NoError(t, err)
	return s
}

// documents returns the documents of a YAML stream, as JSON has them.
func documents(t *testing.T, text []byte) []any {
	t.Helper()
	var all []any
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var v any
		err := d.Decode(&v)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		plain, err := json.Marshal(v)
		require.NoError(t, err)
		var doc any
		require.NoError(t, json.Unmarshal(plain, &doc))
		all = append(all, doc)
	}
}

// No cluster is there to take them: the manifests are checked against the schemas that Kubernetes publishes.
func TestManifestsAreWhatKubernetesTakes(t *testing.T) {
	text, err := Jobs(folder(t, config))
	require.NoError(t, err)
	golden.Equal(t, "testdata/jobs.yaml", text)
	jobs := documents(t, text)
	require.Len(t, jobs, 2)
	s := schema(t, "io.k8s.api.batch.v1.Job")
	for _, j := range jobs {
		require.NoError(t, s.Validate(j))
	}
	// The schema can refuse.
	for _, wrong := range []string{"completionMode: Indexed\n", "onExitCodes:", "mountPath:"} {
		broken := strings.Replace(string(text), wrong, "not"+wrong, 1)
		require.NotEqual(t, string(text), broken, wrong)
		require.Error(t, s.Validate(documents(t, []byte(broken))[0]), wrong)
	}
}

func TestTheSmallestManifestIsTaken(t *testing.T) {
	text, err := Jobs(folder(t, "models: [resnet18]\nboards: [t4]\nkubernetes: {image: i, claim: c}\n"))
	require.NoError(t, err)
	require.NoError(t, schema(t, "io.k8s.api.batch.v1.Job").Validate(documents(t, text)[0]))
}

func TestWhatManifestsNeedIsAskedFor(t *testing.T) {
	require.ErrorContains(t, Check("lab.yaml", fleet.Kubernetes{}), "lab.yaml: kubernetes.image: is missing")
	require.ErrorContains(t, Check("lab.yaml", fleet.Kubernetes{Image: "i"}), "kubernetes.claim: is missing")
	k := fleet.Kubernetes{Image: "i", Claim: "c"}
	require.NoError(t, Check("lab.yaml", k))
	k.Pod = map[string]any{"containers": nil}
	require.ErrorContains(t, Check("lab.yaml", k), "kubernetes.pod: containers is set by vprof")
}

func TestActiveTasksAreThoseThatHaveNotEnded(t *testing.T) {
	f := folder(t, config)
	tasks, err := active([]byte(`{"items":[
		{"metadata":{"labels":{"vprof.dev/board":"t4"}},"status":{"active":3,"ready":2,"completedIndexes":"0,2-3","failedIndexes":"5"}},
		{"metadata":{"labels":{"vprof.dev/board":"a100-80-big-ones"}},"status":{"conditions":[{"type":"Failed","status":"True"}]}}]}`), f.GPUs)
	require.NoError(t, err)
	require.Equal(t, map[fleet.Task]string{
		{GPU: "t4", Index: 1}: fleet.RunningState,
		{GPU: "t4", Index: 4}: fleet.RunningState,
	}, tasks)
	_, err = active([]byte("no"), f.GPUs)
	require.Error(t, err)
}

func TestRequestsCountGPUs(t *testing.T) {
	r := &report.Report{
		Case:    report.Case{Case: models.Case{GPUs: 16}},
		Devices: []report.Device{{Name: "sim:h100", GPU: "h100", Memory: 79 << 30}},
		Points: []report.Point{{
			Device:   "sim:h100",
			Estimate: &report.Estimate{Device: report.Interval{High: 60 << 30}, Verdict: report.Fits},
		}},
	}
	hosts := map[string]string{
		"slurm": "\n#SBATCH --mem=40961M\n", "k8s": "  requests:\n    memory: 40961Mi\n",
		"kai": "  requests:\n    memory: 40961Mi\n", "kueue": "            requests:\n              memory: 40961Mi\n",
		"skypilot": "\n  memory: 41+ ", "dstack": "\n  memory: 41GB..\n", "ray": `{"GPU": 1, "memory": 5368709121}`,
		"dra": "",
	}
	for name, want := range map[string]string{
		"slurm": "#SBATCH --nodes=2\n#SBATCH --gres=gpu:8\n", "k8s": "nvidia.com/gpu: 8\n", "kai": "nvidia.com/gpu: 8 ",
		"dra":   "count: 8\n",
		"kueue": "nvidia.com/gpu: 8\n", "skypilot": "num_nodes: 2\nresources:\n  accelerators: nvidia:79GB+:8\n",
		"dstack": "nodes: 2\nresources:\n  gpu:\n    vendor: nvidia\n    memory: 79GB..\n    count: 8\n",
		"ray":    "num_workers=16",
	} {
		var out bytes.Buffer
		require.NoError(t, fleet.WriteRequests(&out, r, name))
		require.Contains(t, out.String(), want)
		require.Contains(t, out.String(), "# 2 machines of 8 GPUs\n")
		require.NotContains(t, out.String(), "part of one,", "parts belong to one GPU")
		require.NotContains(t, out.String(), "memory: 4", "nobody knows what the machine needs")

		with := *r
		e := *r.Points[0].Estimate
		e.Host = &report.HostMemory{Interval: report.Interval{High: 40<<30 + 1}}
		with.Points = []report.Point{{Device: "sim:h100", Estimate: &e}}
		out.Reset()
		require.NoError(t, fleet.WriteRequests(&out, &with, name))
		require.Contains(t, out.String(), hosts[name])
	}
}

// A request is the upper end of the interval, rounded up, and what Kubernetes takes.
func TestRequestsAreTheUpperEndOfTheInterval(t *testing.T) {
	const mib = 1 << 20
	r := &report.Report{
		Devices: []report.Device{{Name: "sim:t4", GPU: "t4", Memory: 15 << 30}},
		Points: []report.Point{
			{Batch: 8, Device: "sim:t4", Estimate: &report.Estimate{Device: report.Interval{
				Bytes: 900 * mib,
				Low:   800 * mib, High: 1024*mib + 1,
			}, Verdict: report.Fits}},
			{Batch: 16, Device: "sim:t4", Estimate: &report.Estimate{
				Device:  report.Interval{High: 99 << 30},
				Verdict: report.DoesNotFit,
			}},
		},
	}
	for name, want := range map[string]string{
		"kueue": "nvidia.com/gpu: 1\n", "skypilot": "accelerators: nvidia:15GB+:1\n",
		"dstack": "memory: 15GB..\n    count: 1\n",
		"ray":    "@ray.remote(num_gpus=0.07)\n", "slurm": "#SBATCH --gres=shard:2\n",
		"k8s": "nvidia.com/gpumem: 1025 ", "kai": `gpu-memory: "1025"`, "dra": `compareTo(quantity("1025Mi")) >= 0`,
	} {
		var out bytes.Buffer
		require.NoError(t, fleet.WriteRequests(&out, r, name))
		require.Contains(t, out.String(), want)
		require.Contains(t, out.String(), "# t4: does not fit\n")
		if name == "dra" {
			claims := documents(t, out.Bytes())
			require.Len(t, claims, 2)
			s := schema(t, "io.k8s.api.resource.v1.ResourceClaimTemplate")
			for _, claim := range claims {
				require.NoError(t, s.Validate(claim))
			}
		}
	}
}
