// Package kubernetes runs the tasks of a fleet as Indexed Jobs of Kubernetes, one Job for each GPU. Their failure
// policy restarts tasks depending on vprof's exit code.
package kubernetes

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/vprof/vprof/bench/fleet"
	"github.com/vprof/vprof/internal/input"
)

// mountPath is the path at which pods mount the fleet's folder.
const mountPath = "/fleet"

// queueLabel is the label for a job's queue in the KAI scheduler.
const queueLabel = "kai.scheduler/queue"

type object = map[string]any

// Check returns an error if the configuration lacks keys that manifests need. The error is an [*input.FormatError].
func Check(file string, k fleet.Kubernetes) error {
	switch {
	case k.Image == "":
		return &input.FormatError{File: file, Key: "kubernetes.image", Reason: "is missing: the image that has vprof"}
	case k.Claim == "":
		return input.KeyErrorf(file, "kubernetes.claim", "is missing: name the persistent volume claim that holds "+
			"the fleet's folder")
	case slices.Contains(strings.Split(k.Path, "/"), ".."):
		return input.KeyErrorf(file, "kubernetes.path", "%q is outside the volume claim; name a folder in it", k.Path)
	}
	for _, key := range []string{"containers", "volumes", "restartPolicy"} {
		if _, given := k.Pod[key]; given {
			return input.KeyErrorf(file, "kubernetes.pod", "%s is set by vprof; leave it out", key)
		}
	}
	return nil
}

// Jobs returns the Kubernetes manifests as YAML documents, one batch/v1 Job for each GPU.
func Jobs(f *fleet.Folder) ([]byte, error) {
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	for _, b := range f.GPUs {
		if err := e.Encode(job(f, b)); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), e.Close()
}

// job returns the manifest of a GPU's Job.
func job(f *fleet.Folder, b fleet.GPUTasks) object {
	k, s := f.Config.Kubernetes, f.Config.Strategy
	labels := object{"app.kubernetes.io/name": "vprof", "vprof.dev/fleet": f.Name, "vprof.dev/board": labelValue(b.Key)}
	if k.Queue != "" {
		labels[queueLabel] = k.Queue
	}
	limits := object{cmp.Or(k.Resource, "nvidia.com/gpu"): 1}
	requests := object{}
	for name, v := range map[string]string{"cpu": k.CPU, "memory": k.Memory} {
		if v != "" {
			requests[name] = v
		}
	}
	container := object{
		"name": "vprof", "image": k.Image,
		"command": []string{
			"vprof", "fleet", "task", mountPath + "/" + b.Key, "--shard", fmt.Sprintf("auto/%d", b.Tasks),
		},
		// The pod's own name does not identify the node.
		"env": []object{{
			"name":      "VPROF_NODE",
			"valueFrom": object{"fieldRef": object{"fieldPath": "spec.nodeName"}},
		}},
		"resources": object{"limits": limits, "requests": requests},
		"volumeMounts": []object{{
			"name": "fleet", "mountPath": mountPath,
			"subPath": strings.Trim(cmp.Or(k.Path, f.Name), "/"),
		}},
	}
	pod := object{
		"restartPolicy": "Never", "containers": []object{container},
		"volumes": []object{{"name": "fleet", "persistentVolumeClaim": object{"claimName": k.Claim}}},
	}
	selector := map[string]string{}
	maps.Copy(selector, k.Selector)
	maps.Copy(selector, b.Selector)
	if len(selector) > 0 {
		pod["nodeSelector"] = selector
	}
	if len(k.Tolerations) > 0 {
		pod["tolerations"] = k.Tolerations
	}
	if k.ServiceAccount != "" {
		pod["serviceAccountName"] = k.ServiceAccount
	}
	if k.RuntimeClass != "" {
		pod["runtimeClassName"] = k.RuntimeClass
	}
	maps.Copy(pod, k.Pod)
	metadata := object{"name": "vprof-" + f.Name + "-" + labelValue(b.Key), "labels": labels}
	if k.Namespace != "" {
		metadata["namespace"] = k.Namespace
	}
	return object{
		"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata,
		"spec": object{
			"completionMode": "Indexed", "completions": b.Tasks, "parallelism": cmp.Or(s.MaxRunning, b.Tasks),
			"backoffLimitPerIndex": cmp.Or(s.Attempts, 3) - 1,
			"podFailurePolicy":     failurePolicy(),
			"template":             object{"metadata": object{"labels": labels}, "spec": pod},
		},
	}
}

// failurePolicy returns a Job's policy for failed tasks by exit code. Drained nodes and interrupted tasks do not count
// as failures. Errors that would recur fail the task at once. All others count, such as an unusable GPU.
func failurePolicy() object {
	return object{"rules": []object{
		{"action": "Ignore", "onPodConditions": []object{{"type": "DisruptionTarget", "status": "True"}}},
		{"action": "Ignore", "onExitCodes": object{"containerName": "vprof", "operator": "In", "values": []int{130}}},
		{"action": "FailIndex", "onExitCodes": object{
			"containerName": "vprof", "operator": "In",
			"values": []int{1, 2, 3},
		}},
		{"action": "Count", "onExitCodes": object{"containerName": "vprof", "operator": "In", "values": []int{4}}},
	}}
}

// labelValue converts a name to one that is valid for labels and jobs.
func labelValue(key string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') {
			return '-'
		}
		return r
	}, strings.ToLower(key)), "-")
}

// Engine runs a fleet on Kubernetes, through kubectl.
type Engine struct{ Folder *fleet.Folder }

var _ fleet.Engine = (*Engine)(nil)

func noKubectl() error {
	return input.Errorf("kubectl is not on the PATH of this machine; install it, or print the manifests without " +
		"--apply and apply them elsewhere")
}

// kubectl runs kubectl in the fleet's namespace.
func (e *Engine) kubectl(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	if ns := e.Folder.Config.Kubernetes.Namespace; ns != "" {
		args = append(args, "--namespace", ns)
	}
	return fleet.Command(ctx, stdin, noKubectl(), "kubectl "+args[0], "kubectl", args...)
}

// Check checks that the cluster can be reached, for [fleet.Engine].
func (e *Engine) Check(context.Context) error {
	if _, err := exec.LookPath("kubectl"); err != nil {
		return noKubectl()
	}
	return nil
}

// CanRestart implements [fleet.Engine]: the policy of the Jobs restarts failed tasks.
func (*Engine) CanRestart() bool { return true }

// Start implements [fleet.Engine]. It starts one Job for all tasks of a GPU; tasks that are already done end at once.
func (e *Engine) Start(ctx context.Context, b fleet.GPUTasks, _ []int, _ []string) error {
	manifest := job(e.Folder, b)
	text, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	// A finished Job cannot be changed, so it is deleted and created again. The files of its tasks are kept.
	name := manifest["metadata"].(object)["name"].(string)
	if _, err := e.kubectl(ctx, nil, "delete", "job", name, "--ignore-not-found", "--wait=true"); err != nil {
		return err
	}
	_, err = e.kubectl(ctx, text, "apply", "--filename", "-")
	return err
}

// jobs is the part of kubectl's JSON about Jobs that vprof reads.
type jobs struct {
	Items []struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
		Status status `json:"status"`
	} `json:"items"`
}

type status struct {
	Ready      int         `json:"ready"`
	Completed  string      `json:"completedIndexes"`
	Failed     string      `json:"failedIndexes"`
	Conditions []condition `json:"conditions"`
}

type condition struct{ Type, Status string }

// ended reports whether the Job has completed or failed.
func (s status) ended() bool {
	return slices.ContainsFunc(s.Conditions, func(c condition) bool {
		return c.Status == "True" && (c.Type == "Complete" || c.Type == "Failed")
	})
}

// Active implements [fleet.Engine]. All unfinished tasks of an unfinished Job count as active.
func (e *Engine) Active(ctx context.Context) (map[fleet.Task]string, error) {
	out, err := e.kubectl(ctx, nil, "get", "jobs", "--selector", "vprof.dev/fleet="+e.Folder.Name, "--output", "json")
	if err != nil {
		return nil, err
	}
	return active(out, e.Folder.GPUs)
}

// active reads kubectl's JSON and returns the unfinished tasks with their states.
func active(out []byte, gpus []fleet.GPUTasks) (map[fleet.Task]string, error) {
	var list jobs
	if err := json.Unmarshal(out, &list); err != nil {
		return nil, fmt.Errorf("kubectl get jobs: %w", err)
	}
	tasks := map[fleet.Task]string{}
	for _, j := range list.Items {
		for _, b := range gpus {
			if labelValue(b.Key) == j.Metadata.Labels["vprof.dev/board"] && !j.Status.ended() {
				j.Status.active(b, tasks)
			}
		}
	}
	return tasks, nil
}

// active adds the unfinished tasks of a GPU. It assumes that the first of them are the running ones.
func (s status) active(b fleet.GPUTasks, tasks map[fleet.Task]string) {
	ended := map[int]bool{}
	for _, i := range append(parseIndexes(s.Completed), parseIndexes(s.Failed)...) {
		ended[i] = true
	}
	for i := range b.Tasks {
		if ended[i] {
			continue
		}
		word := "pending"
		if s.Ready > 0 {
			word = fleet.RunningState
			s.Ready--
		}
		tasks[fleet.Task{GPU: b.Key, Index: i}] = word
	}
}

// maxIndexes limits the number of indexes in a range.
const maxIndexes = 100_000

// parseIndexes parses a list of indexes such as "1,3-5".
func parseIndexes(text string) []int {
	var all []int
	for word := range strings.SplitSeq(text, ",") {
		var from, to int
		switch n, _ := fmt.Sscanf(word, "%d-%d", &from, &to); n {
		case 1:
			all = append(all, from)
		case 2:
			for i := from; i <= min(to, from+maxIndexes); i++ {
				all = append(all, i)
			}
		}
	}
	return all
}

// Cancel ends all waiting and running tasks and returns their number, for [fleet.Engine].
func (e *Engine) Cancel(ctx context.Context) (int, error) {
	tasks, err := e.Active(ctx)
	if err != nil || len(tasks) == 0 {
		return 0, err
	}
	_, err = e.kubectl(ctx, nil, "delete", "jobs", "--selector", "vprof.dev/fleet="+e.Folder.Name)
	return len(tasks), err
}
