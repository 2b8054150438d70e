// Package fleet runs sweeps of many cases on the GPUs of a cluster, through the cluster's scheduler, and merges their
// results. A [Config] lists the models and GPUs. [Prepare] writes the jobs of each GPU into a folder that all machines
// share. An [Engine] starts tasks, each of which runs one shard of a GPU's jobs. The state is in the files of the
// shards, so any machine can resume from the folder.
package fleet

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/vprof/vprof/bench/experiment/sweep"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/pattern"
	"github.com/vprof/vprof/internal/printable"
	"github.com/vprof/vprof/internal/yamlkeys"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
)

// Config is a fleet's YAML file.
type Config struct {
	// Name is the name of the fleet's jobs and of its folder.
	Name string `yaml:"name"`
	// Models are the models to train; each is planned in all Cases.
	Models []Case `yaml:"models"`
	Cases  []Case `yaml:"cases"`
	// Batches are the batch sizes; empty for each model's default.
	Batches  Batches   `yaml:"batches"`
	GPUs     []GPUKind `yaml:"boards"`
	Strategy Strategy  `yaml:"strategy"`

	Slurm      Slurm      `yaml:"slurm"`
	Kubernetes Kubernetes `yaml:"kubernetes"`
	source     []byte
}

// Case is a model, or settings of a case. Missing settings have the model's defaults. Its YAML keys are the keys of
// [models.Fields], and model, trainer and settings.
type Case struct {
	Model string
	// Trainer are the configuration files of a trainer, relative to the fleet's folder. They set the model and the
	// training options; other keys override them.
	Trainer Files
	// patch holds the values of the keys in the file, settings the model's settings.
	patch    models.Patch
	settings models.Settings
	line     int
}

// GPUKind is a kind of GPU in the cluster, with what to request from the scheduler for one.
type GPUKind struct {
	// GPU is the GPU's name in the catalog.
	GPU string `yaml:"gpu"`
	// Partition is the Slurm partition. Gres is the generic resource to request; empty is gpu:1.
	Partition string `yaml:"partition"`
	Gres      string `yaml:"gres"`
	// Selector are the labels of the Kubernetes nodes that have the GPU.
	Selector map[string]string `yaml:"node-selector"`
	line     int
}

// Strategy describes how tasks are scheduled.
type Strategy struct {
	// Device is the device on which tasks run: "cuda:0", or "sim" for a simulated GPU. Empty is cuda:0 with a
	// scheduler, and sim on this machine.
	Device  string `yaml:"device"`
	FindMax bool   `yaml:"find-max"`
	WarmUp  int    `yaml:"warm-up"`
	Repeat  int    `yaml:"repeat"`
	Verify  bool   `yaml:"verify"`
	// TasksPerGPU is the largest number of tasks into which a GPU's jobs are divided; zero is 100.
	TasksPerGPU int `yaml:"tasks"`
	// MaxRunning is the largest number of a GPU's tasks that run at the same time; zero leaves it to the scheduler.
	MaxRunning int `yaml:"at-once"`
	// Attempts is the largest number of times that a task is started; zero is 3.
	Attempts int `yaml:"attempts"`
}

// Slurm has the additional settings of Slurm jobs.
type Slurm struct {
	Account string `yaml:"account"`
	QOS     string `yaml:"qos"`
	Time    string `yaml:"time"`
	CPUs    int    `yaml:"cpus"`
	Memory  string `yaml:"memory"`
	// Container is the image in which tasks run, by Apptainer or, if Runtime is "pyxis", by srun.
	Container string `yaml:"container"`
	Runtime   string `yaml:"container-runtime"`
	// Setup are shell lines before the task. Options are further #SBATCH lines.
	Setup   string   `yaml:"setup"`
	Options []string `yaml:"options"`
	// Vprof is the path of vprof on the nodes; empty is the path of this program.
	Vprof string `yaml:"vprof"`
}

// Kubernetes has the additional settings of Kubernetes jobs.
type Kubernetes struct {
	Namespace string `yaml:"namespace"`
	Image     string `yaml:"image"`
	// Claim is the persistent volume claim that contains the fleet's folder, at Path.
	Claim string `yaml:"claim"`
	Path  string `yaml:"path"`
	// Resource is the Kubernetes resource name of a GPU; empty is nvidia.com/gpu.
	Resource       string `yaml:"resource"`
	CPU            string `yaml:"cpu"`
	Memory         string `yaml:"memory"`
	ServiceAccount string `yaml:"service-account"`
	RuntimeClass   string `yaml:"runtime-class"`
	Queue          string `yaml:"queue"`
	// Selector are node labels for all GPUs, in addition to the labels of each GPU. Tolerations are as in a pod.
	Selector    map[string]string `yaml:"node-selector"`
	Tolerations []map[string]any  `yaml:"tolerations"`
	// Pod are further fields of the pod's spec. They override vprof's.
	Pod map[string]any `yaml:"pod"`
}

// Batches are batch sizes. YAML gives a number, a list of numbers, or text as for --batch.
type Batches []int

// Files are paths of files. YAML gives one path or a list.
type Files []string

// UnmarshalYAML implements [yaml.Unmarshaler].
func (f *Files) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*f = Files{n.Value}
		return nil
	}
	return n.Decode((*[]string)(f))
}

// UnmarshalYAML implements [yaml.Unmarshaler].
func (b *Batches) UnmarshalYAML(n *yaml.Node) error {
	text := n.Value
	if n.Kind == yaml.SequenceNode {
		words := lists.Map(n.Content, func(item *yaml.Node) string { return item.Value })
		text = strings.Join(words, ",")
	}
	sizes, err := sweep.ParseBatches(text)
	if err != nil {
		return fmt.Errorf("line %d: batches: %w", n.Line, err)
	}
	*b = sizes
	return nil
}

// Keys implements [yamlkeys.Keyed].
func (*Case) Keys() []string {
	keys := []string{"model", "trainer", "settings"}
	for _, f := range models.Fields() {
		if f.Name != "" && f.JSON != "settings" {
			keys = append(keys, f.Name)
		}
	}
	return keys
}

// UnmarshalYAML implements [yaml.Unmarshaler]. A scalar is the name of a model.
func (c *Case) UnmarshalYAML(n *yaml.Node) error {
	c.line, c.patch = n.Line, models.Patch{}
	if n.Kind == yaml.ScalarNode {
		c.Model = n.Value
		return nil
	}
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: a case must be keys with values (model: gpt2), not a list", n.Line)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if err := c.setKey(n.Content[i], n.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

func (c *Case) setKey(key, value *yaml.Node) error {
	switch key.Value {
	case "model":
		return value.Decode(&c.Model)
	case "trainer":
		return value.Decode(&c.Trainer)
	case "settings":
		return value.Decode(&c.settings)
	}
	f := models.FieldNamed(key.Value)
	if f == nil { // behind an alias, whose keys are checked where it stands
		return fmt.Errorf("line %d: unknown key %q", key.Line, key.Value)
	}
	var text *string
	if err := value.Decode(&text); err != nil || text == nil {
		return err
	}
	change, err := f.Parse(*text)
	if err != nil {
		return fmt.Errorf("line %d: %s: %w", value.Line, f.Name, err)
	}
	c.patch.Set(change)
	return nil
}

// UnmarshalYAML implements [yaml.Unmarshaler]. A scalar is the name of a GPU in the catalog and of its partition.
func (b *GPUKind) UnmarshalYAML(n *yaml.Node) error {
	b.line = n.Line
	if n.Kind == yaml.ScalarNode {
		b.GPU = n.Value
		return nil
	}
	type plain GPUKind
	return n.Decode((*plain)(b))
}

// maxConfigBytes is the largest accepted size of a fleet's file: ten thousand cases take a megabyte.
const maxConfigBytes = 16 << 20

// Read reads a fleet's YAML file. The error is an [*input.FormatError] unless reading failed.
func Read(r io.Reader, file string) (*Config, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxConfigBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(data) > maxConfigBytes {
		return nil, input.FileErrorf(file, "the fleet file is longer than %d MiB; split it into several",
			maxConfigBytes>>20)
	}
	c := &Config{source: data}
	if err := yamlkeys.Decode(file, data, c); err != nil {
		return nil, err
	}
	return c, c.check(file)
}

// namePattern matches names that are valid for folders and for jobs of Slurm and Kubernetes.
var namePattern = pattern.Lazy(`^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$`)

func (c *Config) check(file string) error {
	wrong := func(line int, key, format string, args ...any) error {
		return &input.FormatError{File: file, Line: line, Key: key, Reason: fmt.Sprintf(format, args...)}
	}
	c.Name = cmp.Or(c.Name, "fleet")
	s := c.Strategy
	switch {
	case !namePattern().MatchString(c.Name):
		return wrong(0, "name", "%q; want lower-case letters, digits and -, at most 40, as Kubernetes takes", c.Name)
	case len(c.Models) == 0:
		return wrong(0, "models", "names no model; list them with \"vprof models\"")
	case len(c.GPUs) == 0:
		return wrong(0, "boards", "names no GPU; list them with \"vprof gpus\"")
	case s.TasksPerGPU < 0 || s.TasksPerGPU > maxTasks:
		return wrong(0, "strategy.tasks", "%d; a GPU can have 1 to %d tasks", s.TasksPerGPU, maxTasks)
	case s.MaxRunning < 0 || s.Attempts < 0 || s.WarmUp < 0 || s.Repeat < 0:
		return wrong(0, "strategy", "has a negative number")
	case s.WarmUp > maxRuns || s.Repeat > maxRuns:
		return wrong(0, "strategy", "more than %d runs of a batch size", maxRuns)
	case s.Device != "" && s.Device != "sim" && !strings.HasPrefix(s.Device, "cuda"):
		return wrong(0, "strategy.device", "%q is neither cuda:0 nor sim", s.Device)
	case c.Slurm.Runtime != "" && c.Slurm.Runtime != "apptainer" && c.Slurm.Runtime != "pyxis":
		return wrong(0, "slurm.container-runtime", "%q is neither apptainer nor pyxis", c.Slurm.Runtime)
	}
	for i, m := range c.Models {
		if m.Model == "" && len(m.Trainer) == 0 {
			return wrong(m.line, fmt.Sprintf("models[%d]", i), "names no model")
		}
	}
	for i, k := range c.Cases {
		if k.Model != "" || len(k.Trainer) > 0 {
			return wrong(k.line, fmt.Sprintf("cases[%d]", i), "names a model (%s); cases are how each of the models "+
				"is trained", cmp.Or(k.Model, strings.Join(k.Trainer, ", ")))
		}
	}
	seen := map[string]bool{}
	for i := range c.GPUs {
		b := &c.GPUs[i]
		if b.GPU == "" {
			return wrong(b.line, fmt.Sprintf("boards[%d]", i), "names no gpu; list them with \"vprof gpus\"")
		}
		gpu, err := device.Lookup(b.GPU)
		if err != nil {
			return wrong(b.line, fmt.Sprintf("boards[%d].gpu", i), "%v", err)
		}
		b.GPU = gpu.Name
		b.Partition = cmp.Or(b.Partition, gpu.Name)
		b.Gres = cmp.Or(b.Gres, "gpu:1")
		if seen[b.Key()] {
			return wrong(b.line, fmt.Sprintf("boards[%d]", i), "%s appears twice", b.Key())
		}
		seen[b.Key()] = true
	}
	return c.checkShell(wrong)
}

// maxTasks is the number of tasks that Slurm accepts in a job array by default.
const maxTasks = 1000

// maxRuns is the largest accepted number of runs of a batch size.
const maxRuns = 1000

// checkShell refuses line breaks and control characters in values that are written into lines of a shell script.
func (c *Config) checkShell(wrong func(line int, key, format string, args ...any) error) error {
	values := map[string]string{
		"slurm.account": c.Slurm.Account, "slurm.qos": c.Slurm.QOS, "slurm.time": c.Slurm.Time,
		"slurm.memory":    c.Slurm.Memory,
		"slurm.container": c.Slurm.Container, "slurm.vprof": c.Slurm.Vprof,
		"slurm.options": strings.Join(c.Slurm.Options, " "),
	}
	for _, b := range c.GPUs {
		values["boards.partition"] += b.Partition
		values["boards.gres"] += b.Gres
	}
	for key, v := range values {
		if strings.ContainsAny(v, "\n\r") {
			return wrong(0, key, "has a line end")
		}
		if shown := printable.Text(v); shown != v {
			return wrong(0, key, "has control characters: %s", shown)
		}
	}
	return nil
}

// Key returns the name of the GPU within the fleet: the GPU's name, followed by the partition's if that differs.
func (b GPUKind) Key() string {
	key := b.GPU
	if b.Partition != b.GPU {
		key += "." + b.Partition
	}
	return strings.Map(func(r rune) rune {
		if r <= ' ' || strings.ContainsRune(`/\:*?"<>|`, r) { // what some system takes for no name of a folder
			return '_'
		}
		return r
	}, key)
}

// applyTo returns a model's case with the values of c in place of its own.
func (c Case) applyTo(to models.Case) models.Case {
	settings := models.Settings{}
	for _, from := range []models.Settings{to.Settings, c.settings} {
		for name, v := range from {
			settings[strings.ReplaceAll(name, "_", "-")] = v
		}
	}
	if len(settings) > 0 {
		to.Settings = settings
	}
	c.patch.Apply(&to)
	return to
}

func (c *Config) batchesFor(m models.Model, k models.Case) []int {
	switch {
	case len(c.Batches) > 0:
		return slices.Compact(slices.Sorted(slices.Values(c.Batches)))
	case k.Batch != m.Default.Batch: // the batch of a trainer's configuration
		return []int{k.Batch}
	case len(m.Batches) > 0:
		return slices.Sorted(slices.Values(m.Batches))
	}
	return []int{k.Batch}
}

// caseLocation names the position of a case in the file, for errors.
func caseLocation(file string, m, k Case) string {
	if k.line > 0 {
		return file + ":" + strconv.Itoa(k.line)
	}
	return file + ":" + strconv.Itoa(m.line)
}
