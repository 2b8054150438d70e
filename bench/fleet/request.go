package fleet

import (
	"fmt"
	"io"
	"slices"
	"text/template"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/printable"
	"github.com/vprof/vprof/profiler/planner/host"
)

// requestValues are the values for a template of a scheduler request: the number of GPUs, and the memory that the step
// needs on each (the upper end of the estimate's interval).
type requestValues struct {
	GPUs, Nodes, PerNode int
	GPU                  string
	// GPUGiB is the GPU's memory size. MiB and GiB are the step's need, rounded up. Share is the need as a share of the
	// GPU's memory, from 0 to 1.
	GPUGiB, MiB, GiB int64
	Share            float64
	// HostMiB and HostGiB are the host memory that each machine needs, ProcessBytes a process's; zero if unknown.
	HostMiB, HostGiB, ProcessBytes int64
	// Parts reports whether a fraction of one GPU is enough (MIG, or a shared GPU).
	Parts bool
}

// requestTemplate is the format of requests to one scheduler.
type requestTemplate struct {
	name string
	text *template.Template
	// perGPU reports whether the request is lines of a script; else it is a YAML document.
	perGPU bool
}

// documentTemplate returns the template of a YAML request, lineTemplate that of script lines.
func documentTemplate(name, text string) requestTemplate {
	return requestTemplate{name: name, text: template.Must(template.New(name).Parse(text))}
}

func lineTemplate(name, text string) requestTemplate {
	r := documentTemplate(name, text)
	r.perGPU = true
	return r
}

var requests = []requestTemplate{
	lineTemplate("slurm", `{{if gt .Nodes 1}}#SBATCH --nodes={{.Nodes}}
{{end}}#SBATCH --gres=gpu:{{.PerNode}}
{{if .HostMiB}}#SBATCH --mem={{.HostMiB}}M
{{end}}{{if .Parts}}# or a part of one, where gres.conf has a shard for each GiB ({{.GPUGiB}} of a {{.GPU}}):
#SBATCH --gres=shard:{{.GiB}}
{{end}}`),
	documentTemplate("k8s", `resources:{{if .HostMiB}}
  requests:
    memory: {{.HostMiB}}Mi{{end}}
  limits:
    nvidia.com/gpu: {{.PerNode}}
    nvidia.com/gpumem: {{.MiB}}  # MiB of each, as HAMi's device plugin counts
`),
	documentTemplate("kai", `{{if eq .GPUs 1}}metadata:
  annotations:
    gpu-memory: "{{.MiB}}"  # MiB
{{if .HostMiB}}resources:
  requests:
    memory: {{.HostMiB}}Mi
{{end}}{{else}}resources:{{if .HostMiB}}
  requests:
    memory: {{.HostMiB}}Mi{{end}}
  limits:
    nvidia.com/gpu: {{.PerNode}}  # KAI shares out parts of one GPU only
{{end}}`),
	documentTemplate("dra", `apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata:
  name: vprof
spec:
  spec:
    devices:
      requests:
        - name: gpu
          exactly:
            deviceClassName: gpu.nvidia.com{{if gt .PerNode 1}}
            count: {{.PerNode}}{{end}}
            selectors:
              - cel:
                  expression: device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("{{.MiB}}Mi")) >= 0
`),
	documentTemplate("kueue", `metadata:
  labels:
    kueue.x-k8s.io/queue-name: default  # the name of your LocalQueue
spec:
  suspend: true
  parallelism: {{.Nodes}}
  template:
    spec:
      containers:
        - name: train
          resources:
            limits:
              nvidia.com/gpu: {{.PerNode}}{{if .HostMiB}}
            requests:
              memory: {{.HostMiB}}Mi{{end}}
`),
	documentTemplate("skypilot", `{{if gt .Nodes 1}}num_nodes: {{.Nodes}}
{{end}}resources:
  accelerators: nvidia:{{.GPUGiB}}GB+:{{.PerNode}}
{{if .HostMiB}}  memory: {{.HostGiB}}+  # GiB of each machine
{{end}}`),
	documentTemplate("dstack", `{{if gt .Nodes 1}}nodes: {{.Nodes}}
{{end}}resources:
  gpu:
    vendor: nvidia
    memory: {{.GPUGiB}}GB..
    count: {{.PerNode}}
{{if .HostMiB}}  memory: {{.HostGiB}}GB..
{{end}}`),
	lineTemplate("ray", `from ray.train import ScalingConfig

scaling_config = ScalingConfig(num_workers={{.GPUs}}, use_gpu=True{{if .HostMiB}}, {{/*
*/}}resources_per_worker={"GPU": 1, "memory": {{.ProcessBytes}}}{{end}})
{{if .Parts}}# or a part of one, where others share it: @ray.remote(num_gpus={{printf "%.2f" .Share}})
{{end}}`),
}

// Requests returns the names of the schedulers for which requests can be written.
func Requests() []string {
	return lists.Map(requests, func(r requestTemplate) string { return r.name })
}

// WriteRequests writes a request to a scheduler, one of [Requests], for the GPUs and memory of each point of a plan.
func WriteRequests(w io.Writer, r *report.Report, to string) error {
	at := slices.IndexFunc(requests, func(r requestTemplate) bool { return r.name == to })
	for i, p := range r.Points {
		d, _ := r.Find(p.Device)
		need := p.Estimate.Device.High
		a := requestValues{
			GPUs: max(1, r.Case.GPUs), GPU: printable.Line(d.GPU), // a line end would leave the comment
			GPUGiB: ceil.Div(d.Memory, bytesize.GiB), MiB: ceil.Div(need, bytesize.MiB),
			GiB:   ceil.Div(need, bytesize.GiB),
			Share: min(1, float64(ceil.Div(100*need, max(1, d.Memory)))/100),
		}
		a.Parts = a.GPUs == 1 && need < d.Memory
		a.Nodes, a.PerNode = host.MachinesFor(a.GPUs)
		if h := p.Estimate.Host; h != nil {
			a.HostMiB, a.HostGiB = ceil.Div(h.High, bytesize.MiB), ceil.Div(h.High, bytesize.GiB)
			a.ProcessBytes = ceil.Div(h.High, int64(a.PerNode))
		}
		if i > 0 && !requests[at].perGPU {
			fmt.Fprintln(w, "---")
		}
		fmt.Fprintf(w, "# %s, batch %d on %s: up to %s of each\n", printable.Line(r.Case.String()), p.Batch, a.GPU,
			bytesize.Format(need))
		if a.Nodes > 1 {
			fmt.Fprintf(w, "# %d machines of %d GPUs\n", a.Nodes, a.PerNode)
		}
		if p.Estimate.Verdict != report.Fits {
			fmt.Fprintf(w, "# %s: %s\n", a.GPU, p.Estimate.Verdict)
		}
		if err := requests[at].text.Execute(w, a); err != nil {
			return err
		}
	}
	return nil
}
