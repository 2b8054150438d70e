package models

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
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
	// Task is what the model is trained for, one of its Tasks; absent if there is no choice.
	Task string `json:"task,omitempty"`
	// Stage is the freeze stage, one of the model's Stages.
	Stage string `json:"stage"`
	// Batch is the number of samples of one micro-batch; absent where the batch
	// sizes stand elsewhere, as in the points of a report.
	Batch int `json:"batch,omitempty"`
	// AMP is the precision of autocast.
	AMP Autocast `json:"amp" jsonschema:"enum=none,enum=fp16,enum=bf16"`
	// Weights is the type of the weights, and of what follows from it: gradients
	// and the optimizer's state; absent means fp32.
	Weights WeightType `json:"weights,omitempty" jsonschema:"enum=bf16,enum=fp16"`
	// Checkpointing recomputes activations in backward.
	Checkpointing bool `json:"checkpointing"`
	// Blocks are glob patterns of the paths of the modules that checkpointing
	// recomputes, separated by commas; absent for the model's own.
	Blocks string `json:"blocks,omitempty"`
	// Accumulate is the number of micro-batches of one optimizer step.
	Accumulate int `json:"accumulate"`
	// Optimizer is one of [Optimizers], in place of the system's own; absent keeps the system's.
	Optimizer string `json:"optimizer,omitempty"`
	// Loss is the function that is differentiated, one of the model's Losses, and Output
	// the model output that it takes; absent for the model's own.
	Loss   string `json:"loss,omitempty"`
	Output string `json:"output,omitempty"`
	// Freeze are glob patterns of the names of parameters that are not trained, separated by commas.
	Freeze string `json:"freeze,omitempty"`
	// LoRA are the options of the adapters that are trained instead of the model; absent if there are none.
	LoRA *LoRA `json:"lora,omitempty"`
	Levers
	// Dataset is the size in bytes of training data that stays on the GPU for the whole
	// run, besides the batch; absent if all of it comes from the host.
	Dataset int64 `json:"dataset_bytes,omitempty"`
	// Workers is the number of DataLoader workers of each training process; they need only host memory.
	Workers int `json:"workers,omitempty"`
	// Settings are the model's free numbers; those left out have its defaults.
	Settings Settings `json:"settings,omitempty"`
	// AllocConf is the PYTORCH_CUDA_ALLOC_CONF; absent means the defaults.
	AllocConf string `json:"alloc_conf,omitempty"`
	// TF32 is which fp32 operators compute in TF32, one of [TF32s]; absent is PyTorch's default, convolutions.
	TF32 string `json:"tf32,omitempty"`
	// CublasWorkspace is the CUBLAS_WORKSPACE_CONFIG; absent means PyTorch's own size.
	CublasWorkspace string `json:"cublas_workspace,omitempty"`
	// GPUs is the number of ranks that train together, one on each GPU, and Strategy how; absent for one alone.
	GPUs     int       `json:"gpus,omitempty"`
	Strategy *Strategy `json:"strategy,omitempty"`
	// Torch is the release of PyTorch that trains, by whose rules memory is taken, as
	// [ParseRelease] writes it; absent is 2.11.
	Torch string `json:"torch,omitempty"`
	// Stack are the releases of libraries beside PyTorch that the step depends on; absent for the newest known.
	Stack stack.Libraries `json:"stack,omitempty"`
	// ConfigHash is the SHA-256 of the description of a model that the registry does
	// not list, see [Description]; absent for models of the registry.
	ConfigHash string `json:"config_sha256,omitempty"`
}

// CaseKey identifies a case: two cases are the same if their keys are equal. It is the
// case's JSON, so keys of one version of vprof are keys of the next.
type CaseKey string

// Key returns the case's identity. An omitted setting and one with the model's default value differ; [Model.Canonical]
// makes them the same.
func (c Case) Key() CaseKey {
	text, err := json.Marshal(c)
	if err != nil {
		panic(fmt.Errorf("models: a case that JSON cannot hold: %w", err)) // its fields are plain
	}
	return CaseKey(text)
}

// String returns a line that describes what is trained and how, without the batch size.
func (c Case) String() string {
	words := lists.NonZero(fields, func(f Field) string { return f.Words(&c) })
	return strings.Join(append([]string{c.Model}, words...), ", ")
}

// CaseText returns the line of [Case.String] without the release of PyTorch.
func (c Case) CaseText() string {
	return strings.Replace(c.String(), ", PyTorch "+c.ReleaseName(), "", 1)
}

// unnamedRelease is the release of PyTorch of cases that name none: the only one there was before files named it.
const unnamedRelease = "2.11"

// ReleaseName returns the release of PyTorch that trains: "2.15".
func (c Case) ReleaseName() string { return cmp.Or(c.Torch, unnamedRelease) }

// Release returns the release of PyTorch that trains, with its rules and the rules of the libraries beside it.
func (c Case) Release() (*stack.Stack, error) {
	s, err := stack.Lookup(c.ReleaseName())
	if err == nil && len(c.Stack) > 0 {
		s = s.With(c.Stack)
	}
	return s, err
}

// Libraries returns the rules of libraries beside PyTorch; the newest for an unknown PyTorch.
func (c Case) Libraries() trace.Libraries {
	s, err := c.Release()
	if err != nil {
		s = stack.Default()
	}
	return s.Rules().Libraries
}

// ParseRelease looks a release of PyTorch up by its name, see [stack.Lookup], and returns the name that cases hold:
// "2.15", or "" for the release of cases that name none.
func ParseRelease(text string) (string, error) {
	s, err := stack.Lookup(text)
	if err != nil || s.Release() == unnamedRelease {
		return "", err
	}
	return s.Release(), nil
}

// Precision returns the type of arithmetic, and the type of the weights if it differs.
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

// Words returns the settings as the command line takes them, sorted: "seq-len=512".
func (s Settings) Words() []string {
	names := slices.Sorted(maps.Keys(s))
	return lists.Map(names, func(name string) string { return fmt.Sprintf("%s=%d", name, s[name]) })
}

// Autocast is the precision of torch.autocast: [NoAutocast], "fp16" or "bf16".
// The zero value is written "none", on command lines and in files.
type Autocast string

// NoAutocast computes in the type of the weights.
const NoAutocast Autocast = ""

const noAutocast = "none"

// inTorch are types by PyTorch's own names.
var inTorch = map[string]string{"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": fp32, "float": fp32}

// Precisions returns all values of [Autocast].
func Precisions() []Autocast { return []Autocast{NoAutocast, "fp16", "bf16"} }

// Precisions returns the precisions in which a model with the case's weights can train. Autocast in fp16 needs a
// GradScaler, which does not accept gradients of half-precision weights.
func (c Case) Precisions() []Autocast {
	if c.Weights == FP32 || c.Weights != "bf16" && (c.LoRA != nil || c.TrainedWeights != "") {
		return Precisions()
	}
	return []Autocast{NoAutocast, "bf16"}
}

// ParseAutocast reads what [Autocast.String] writes.
func ParseAutocast(text string) (Autocast, error) {
	text = cmp.Or(inTorch[text], text)
	switch {
	case text == "":
		return NoAutocast, errors.New("empty; use none, fp16 or bf16")
	case text == noAutocast:
		return NoAutocast, nil
	case !slices.Contains(Precisions(), Autocast(text)):
		return NoAutocast, fmt.Errorf("there is no precision %q; use none, fp16 or bf16", text)
	}
	return Autocast(text), nil
}

// String returns the precision as people write it.
func (a Autocast) String() string {
	if a == NoAutocast {
		return noAutocast
	}
	return string(a)
}

// MarshalText implements [encoding.TextMarshaler].
func (a Autocast) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (a *Autocast) UnmarshalText(text []byte) error { return unmarshal(a, text, ParseAutocast) }

// WeightType is the data type of a model's weights: [FP32], "bf16" or "fp16". The zero
// value is written "fp32" on command lines and left out of files.
type WeightType string

// FP32 is the default type of weights.
const FP32 WeightType = ""

const fp32 = "fp32"

// WeightTypes returns all values of [WeightType].
func WeightTypes() []WeightType { return []WeightType{FP32, "bf16", "fp16"} }

// ParseWeightType reads what [WeightType.String] writes.
func ParseWeightType(text string) (WeightType, error) {
	text = cmp.Or(inTorch[text], text)
	switch {
	case text == "":
		return FP32, errors.New("empty; use fp32, bf16 or fp16")
	case text == fp32:
		return FP32, nil
	case !slices.Contains(WeightTypes(), WeightType(text)):
		return FP32, fmt.Errorf("there is no type %q; use fp32, bf16 or fp16", text)
	}
	return WeightType(text), nil
}

// String returns the type as people write it.
func (w WeightType) String() string {
	if w == FP32 {
		return fp32
	}
	return string(w)
}

// Description is the JSON definition of a model that the registry does not list: its configuration file or its graph.
// Cases refer to it by its hash. The zero value means a model of the registry.
type Description struct{ text, hash string }

// Describe makes the description of a text.
func Describe(text string) Description {
	if text == "" {
		return Description{}
	}
	sum := sha256.Sum256([]byte(text))
	return Description{text, hex.EncodeToString(sum[:])}
}

// Text returns the JSON that the model is made of; empty for none.
func (d Description) Text() string { return d.text }

// compiledDescription is the text of a description with recorded steps.
type compiledDescription struct {
	Compiled []byte `json:"compiled"`
	Model    string `json:"model"`
}

// WithSteps returns the description of a model whose steps under torch.compile come from the content of a file.
func (d Description) WithSteps(content []byte) Description {
	text, err := json.Marshal(compiledDescription{content, d.text})
	if err != nil {
		panic(err) // of bytes and a string
	}
	return Describe(string(text))
}

// parts returns the text of the model itself, and the content of its file of steps under torch.compile; nil for none.
func (d Description) parts() (model string, steps []byte) {
	var both compiledDescription
	if !strings.HasPrefix(d.text, `{"compiled":"`) || json.Unmarshal([]byte(d.text), &both) != nil {
		return d.text, nil
	}
	return both.Model, both.Compiled
}

// Hash returns the SHA-256 of the text in hexadecimal; empty for none.
func (d Description) Hash() string { return d.hash }

// Difference is a field in which two cases differ.
type Difference struct {
	// Label is what tables call the field, and A and B are its values; empty where the model decides.
	Label, A, B string
	// Case is the first case with the second one's values of this field and of those before it.
	Case Case
}

// Differences returns the fields in which two cases differ, in the order of a line that describes a case.
func Differences(a, b Case) []Difference {
	last := map[string]int{} // of several fields in one object of the file, the last says it as a whole
	for i := range fields {
		last[fields[i].JSON] = i
	}
	from, to := a.values(), b.values()
	var all []Difference
	for i := range fields {
		f := &fields[i]
		if last[f.JSON] != i || bytes.Equal(from[f.JSON], to[f.JSON]) {
			continue
		}
		if from[f.JSON] = to[f.JSON]; to[f.JSON] == nil {
			delete(from, f.JSON)
		}
		d := Difference{Label: f.Phrase(), A: f.Text(a), B: f.Text(b)}
		text, err := json.Marshal(from)
		if err == nil {
			err = json.Unmarshal(text, &d.Case)
		}
		if err != nil {
			panic(err) // each value is one of a case
		}
		all = append(all, d)
	}
	return all
}
