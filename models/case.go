package models

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace"
)

// Case is the model to train and its training options. Its JSON is the form of a case in every file of vprof; fields
// absent there are zero here.
type Case struct {
	Model string `json:"model"`
	// Task is the training task, one of the model's Tasks ("causal-lm"); absent if the model has only one.
	Task string `json:"task,omitempty"`
	// Stage is the freeze stage, one of the model's Stages.
	Stage string `json:"stage"`
	// Batch is the number of samples of one micro-batch. It is absent in reports, whose points hold the batch sizes.
	Batch int `json:"batch,omitempty"`
	// AMP is the precision of torch.autocast.
	AMP Autocast `json:"amp" jsonschema:"enum=none,enum=fp16,enum=bf16"`
	// Weights is the data type of the weights, their gradients and the optimizer state; absent means fp32.
	Weights WeightType `json:"weights,omitempty" jsonschema:"enum=bf16,enum=fp16"`
	// Checkpointing reports whether backward recomputes activations (torch.utils.checkpoint).
	Checkpointing bool `json:"checkpointing"`
	// Blocks are comma-separated glob patterns of the paths of the modules that checkpointing recomputes. Absent
	// means the modules that the model's own code recomputes.
	Blocks string `json:"blocks,omitempty"`
	// Accumulate is the number of micro-batches of one optimizer step.
	Accumulate int `json:"accumulate"`
	// Optimizer is one of [Optimizers]; absent means the optimizer that the model's project uses.
	Optimizer string `json:"optimizer,omitempty"`
	// Loss is the loss function, one of the model's Losses. Output is the model output that it is computed from.
	// Absent values mean the model's own.
	Loss   string `json:"loss,omitempty"`
	Output string `json:"output,omitempty"`
	// Freeze are comma-separated glob patterns of the names of parameters that are frozen.
	Freeze string `json:"freeze,omitempty"`
	// LoRA holds the options of adapters, which train while the model is frozen; nil without adapters.
	LoRA *LoRA `json:"lora,omitempty"`
	MemoryOptions
	// Dataset is the size in bytes of a data set that stays on the GPU for the whole run; absent if batches come from
	// the host.
	Dataset int64 `json:"dataset_bytes,omitempty"`
	// Workers is the number of DataLoader workers of each training process. They affect host memory only.
	Workers int `json:"workers,omitempty"`
	// Settings holds the values of the model's settings by name; settings that are absent have the model's defaults.
	Settings Settings `json:"settings,omitempty"`
	// AllocConf is the value of PYTORCH_CUDA_ALLOC_CONF; absent means PyTorch's defaults.
	AllocConf string `json:"alloc_conf,omitempty"`
	// TF32 names the fp32 operators that compute in TF32, one of [TF32Modes]; absent means convolutions.
	TF32 string `json:"tf32,omitempty"`
	// CublasWorkspace is the value of CUBLAS_WORKSPACE_CONFIG; absent means PyTorch's default workspace size.
	CublasWorkspace string `json:"cublas_workspace,omitempty"`
	// GPUs is the number of ranks, one on each GPU. Strategy shares the training among them; nil on one GPU.
	GPUs     int       `json:"gpus,omitempty"`
	Strategy *Strategy `json:"strategy,omitempty"`
	// Torch is the release of PyTorch whose memory rules apply, as [ParseRelease] returns it; absent is 2.11.
	Torch string `json:"torch,omitempty"`
	// Stack holds the releases of the other libraries that affect the step; absent releases are the newest known.
	Stack stack.Libraries `json:"stack,omitempty"`
	// ConfigHash is the SHA-256 of the [Description] of a user's model; absent for models of the registry.
	ConfigHash string `json:"config_sha256,omitempty"`
}

// CaseKey is the JSON of a case; equal cases have equal keys. Keys stay the same across versions of vprof.
type CaseKey string

// Key returns the JSON that identifies the case. A setting that is left out and one with the default value give
// different keys; [Model.Canonical] removes that difference.
func (c Case) Key() CaseKey {
	text, err := json.Marshal(c)
	if err != nil {
		panic(fmt.Errorf("models: a case that JSON cannot hold: %w", err)) // every field can be written as JSON
	}
	return CaseKey(text)
}

// String returns one line that describes the model and all options except the batch size.
func (c Case) String() string {
	words := lists.NonZero(fields, func(f Field) string { return f.SummaryText(&c) })
	return strings.Join(append([]string{c.Model}, words...), ", ")
}

// StringWithoutRelease returns the line of [Case.String] without the release of PyTorch.
func (c Case) StringWithoutRelease() string {
	return strings.Replace(c.String(), ", PyTorch "+c.ReleaseName(), "", 1)
}

// unnamedRelease is the PyTorch release of cases without one: files named none while vprof knew 2.11 alone.
const unnamedRelease = "2.11"

// ReleaseName returns the PyTorch release of the case: "2.15".
func (c Case) ReleaseName() string { return cmp.Or(c.Torch, unnamedRelease) }

// Release returns the PyTorch release of the case, with its memory rules and the other libraries' rules.
func (c Case) Release() (*stack.Stack, error) {
	s, err := stack.Lookup(c.ReleaseName())
	if err == nil && len(c.Stack) > 0 {
		s = s.WithLibraries(c.Stack)
	}
	return s, err
}

// Libraries returns the rules of the libraries besides PyTorch. If PyTorch's release is unknown, they are the newest.
func (c Case) Libraries() trace.Libraries {
	s, err := c.Release()
	if err != nil {
		s = stack.Default()
	}
	return s.Rules().Libraries
}

// ParseRelease finds a release of PyTorch by its name, see [stack.Lookup], and returns its name as in [Case.Torch]:
// "2.15", or "" for 2.11.
func ParseRelease(text string) (string, error) {
	s, err := stack.Lookup(text)
	if err != nil || s.Release() == unnamedRelease {
		return "", err
	}
	return s.Release(), nil
}

// Precision returns the precision of autocast, followed by the data type of the weights if that differs.
func (c Case) Precision() string {
	switch {
	case c.AMP != NoAutocast && c.Weights != "":
		return fmt.Sprintf("%s autocast, %s weights", c.AMP, c.Weights)
	case c.AMP != NoAutocast:
		return c.AMP.String() + " autocast"
	case c.Weights != "":
		return c.Weights.String() + " weights"
	}
	return "fp32"
}

// Assignments returns the settings as sorted arguments of --set: "seq-len=512".
func (s Settings) Assignments() []string {
	names := slices.Sorted(maps.Keys(s))
	return lists.Map(names, func(name string) string { return fmt.Sprintf("%s=%d", name, s[name]) })
}

// Autocast is the precision of torch.autocast: "fp16", "bf16", or [NoAutocast], which is written "none".
type Autocast string

// NoAutocast means training without torch.autocast.
const NoAutocast Autocast = ""

const noAutocast = "none"

// torchTypeNames maps PyTorch's names of data types to vprof's.
var torchTypeNames = map[string]string{
	"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": fp32,
	"float": fp32,
}

// AutocastPrecisions returns the precisions of autocast that a case may have.
func AutocastPrecisions() []Autocast { return []Autocast{NoAutocast, "fp16", "bf16"} }

// AutocastChoices returns the autocast precisions in which a model with the case's weight type can train. Autocast in
// fp16 needs a GradScaler, which rejects gradients of half-precision weights.
func (c Case) AutocastChoices() []Autocast {
	if c.Weights == FP32 || c.Weights != "bf16" && (c.LoRA != nil || c.TrainedWeights != "") {
		return AutocastPrecisions()
	}
	return []Autocast{NoAutocast, "bf16"}
}

// ParseAutocast parses the text of [Autocast.String].
func ParseAutocast(text string) (Autocast, error) { return parsePrecision[Autocast](text, noAutocast) }

// parsePrecision parses bf16, fp16, their names in PyTorch, or the name of the zero value.
func parsePrecision[T ~string](text, zero string) (T, error) {
	switch name := cmp.Or(torchTypeNames[text], text); name {
	case zero:
		return "", nil
	case "bf16", "fp16":
		return T(name), nil
	}
	return "", fmt.Errorf("there is no precision %q; use %s, fp16 or bf16", text, zero)
}

// String returns the name of the precision; "none" without autocast.
func (a Autocast) String() string { return cmp.Or(string(a), noAutocast) }

// MarshalText returns the text of String, for [encoding.TextMarshaler].
func (a Autocast) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText parses the text that MarshalText returns.
func (a *Autocast) UnmarshalText(text []byte) error { return unmarshalText(a, text, ParseAutocast) }

// WeightType is the data type of a model's weights: "bf16", "fp16", or [FP32], "fp32" in flags and absent in files.
type WeightType string

// FP32 is the default type of weights.
const FP32 WeightType = ""

const fp32 = "fp32"

// WeightTypes returns the types that weights may have.
func WeightTypes() []WeightType { return []WeightType{FP32, "bf16", "fp16"} }

// ParseWeightType parses the text of [WeightType.String].
func ParseWeightType(text string) (WeightType, error) { return parsePrecision[WeightType](text, fp32) }

// String returns the name of the type; "fp32" for the zero value.
func (w WeightType) String() string { return cmp.Or(string(w), fp32) }

// Description is the JSON that defines a user's model: its configuration file or its exported graph. Cases refer to
// it by its hash. It is zero for models of the registry.
type Description struct{ text, hash string }

// NewDescription returns the description with a text and its hash.
func NewDescription(text string) Description {
	if text == "" {
		return Description{}
	}
	sum := sha256.Sum256([]byte(text))
	return Description{text, hex.EncodeToString(sum[:])}
}

// Text returns the JSON of the model's definition; empty for the zero value.
func (d Description) Text() string { return d.text }

// compiledDescription is the JSON of a description that also holds the file of steps recorded under torch.compile.
type compiledDescription struct {
	Compiled []byte `json:"compiled"`
	Model    string `json:"model"`
}

// WithSteps returns the description with the content of a file of steps that were recorded under torch.compile.
func (d Description) WithSteps(content []byte) Description {
	text, err := json.Marshal(compiledDescription{content, d.text})
	if err != nil {
		panic(err) // bytes and strings can be written as JSON
	}
	return NewDescription(string(text))
}

// modelAndSteps returns the model's own definition and the content of its file of steps under torch.compile (or nil).
func (d Description) modelAndSteps() (model string, steps []byte) {
	var both compiledDescription
	if !strings.HasPrefix(d.text, `{"compiled":"`) || json.Unmarshal([]byte(d.text), &both) != nil {
		return d.text, nil
	}
	return both.Model, both.Compiled
}

// Hash returns the hash of the file that describes the model.
func (d Description) Hash() string { return d.hash }

// Difference is one field whose value differs between two cases.
type Difference struct {
	// Name is the field's flag, Label its name in tables. A and B are its values in the two cases; empty where the
	// model decides them.
	Name, Label, A, B string
	// Case is the first case after this and all earlier differences are replaced by the second case's values.
	Case Case
}

// Differences returns the fields in which two cases differ, in the order in which [Case.String] writes them.
func Differences(a, b Case) []Difference {
	last := map[string]int{} // index of the last field with each JSON key
	for i := range fields {
		last[fields[i].JSON] = i
	}
	from, to := a.jsonFields(), b.jsonFields()
	var all []Difference
	for i := range fields {
		f := &fields[i]
		if last[f.JSON] != i || bytes.Equal(from[f.JSON], to[f.JSON]) {
			continue
		}
		if from[f.JSON] = to[f.JSON]; to[f.JSON] == nil {
			delete(from, f.JSON)
		}
		d := Difference{Name: f.Name, Label: f.TableLabel(), A: f.Text(a), B: f.Text(b)}
		text, err := json.Marshal(from)
		if err == nil {
			err = json.Unmarshal(text, &d.Case)
		}
		if err != nil {
			panic(err) // the value comes from a valid case
		}
		all = append(all, d)
	}
	return all
}
