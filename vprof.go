// Package vprof predicts the GPU memory of a PyTorch training step, for Go programs: [Plan] estimates batch sizes,
// [Fit] finds the largest safe one, [Smoke] judges a whole training. They give the answers of the commands "vprof
// plan", "vprof fit" and "vprof smoke", in this process, without a GPU or the network.
//
// Goroutines may call the functions at once. The functions print nothing, change no setting of the program, and start
// no process but a Python that a request names as its stack. Latest recordings stay in memory, up to about 100 MB. As
// on the command line a vprof.yaml of the working directory and VPROF_ variables set defaults; a model "hf:NAME" must
// be a listed one or in the cache of Hugging Face.
//
// All byte counts are for one GPU. Estimates are simulated values with an interval, never measurements.
package vprof

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/cli"
	"github.com/vprof/vprof/internal/input"
)

// A Request describes what is trained, and on which GPU. Zero fields are left to the model or its configuration. Its
// JSON is a request of "vprof plan --json-request".
type Request struct {
	// Model is a name ("gpt2"; "vprof models" lists them), a file of torch.export ("model.pt2"), or "hf:" with a name
	// or a config.json of transformers.
	Model string `json:"model,omitempty"`
	// Files are the configuration of a trainer (.yaml, .json, .toml, .sh), which the other fields override.
	Files []string `json:"files,omitempty"`
	// GPU holds names of GPUs ("rtx-4090"), or "all"; "vprof gpus" lists them. Smoke accepts one. RTX 5060 Ti if empty.
	GPU []string `json:"gpu,omitempty"`
	// GPUMemory replaces the total memory of the GPU. HostMemory is the memory of the machine, to be checked, too.
	GPUMemory  Bytes `json:"gpu-memory,omitempty"`
	HostMemory Bytes `json:"host-memory,omitempty"`
	// GPUs is the number of GPUs that share the training, each with its own batch, and Strategy how: "ddp", "fsdp2",
	// "zero3", "tp" and others, with options as in "fsdp2:mp=bf16"; for Fit also "auto".
	GPUs     int    `json:"gpus,omitempty"`
	Strategy string `json:"strategy,omitempty"`
	// Batch holds the samples of a step on each GPU: for Plan any number of batch sizes, for Smoke one. With one, Fit
	// judges which configurations hold it.
	Batch []int `json:"batch,omitempty"`
	// Accumulate is the number of steps before the optimizer's.
	Accumulate int `json:"accumulate,omitempty"`
	// SeqLen is the length of each sample in tokens, of models that have any.
	SeqLen int `json:"seq-len,omitempty"`
	// AMP is autocast's precision: "none", "fp16" or "bf16". Weights is the weights' type: "fp32", "fp16" or "bf16".
	AMP     string `json:"amp,omitempty"`
	Weights string `json:"weights,omitempty"`
	// Checkpointing is "true", "false", "reentrant", "every=2" and others.
	Checkpointing string `json:"checkpointing,omitempty"`
	// Optimizer is a name, such as "adamw" or "paged-adamw8bit".
	Optimizer string `json:"optimizer,omitempty"`
	// LoRA holds the options of adapters ("r=8,target=all-linear"), and Quantize the type of the frozen layers ("nf4").
	LoRA     string `json:"lora,omitempty"`
	Quantize string `json:"quantize,omitempty"`
	// Torch is the release of PyTorch ("2.15").
	Torch string `json:"torch,omitempty"`
	// Options are further options of the command by name ("vprof help plan"): numbers, strings, booleans, lists, and
	// objects for options that repeat.
	Options map[string]any `json:"more,omitempty"`
}

// Bytes is an amount of memory in bytes, which must be positive.
type Bytes int64

// MarshalJSON writes the amount with its unit: without it, small numbers mean GiB.
func (b Bytes) MarshalJSON() ([]byte, error) {
	return strconv.AppendQuote(nil, strconv.FormatInt(int64(b), 10)+"B"), nil
}

// Response is the answer of [Plan]: what each GPU needs at each batch size, and whether it fits.
type Response = report.Response

// FitResult is the answer of [Fit]: configurations with the largest batch of each; Overall returns one GPU's best.
type FitResult struct {
	report.Fit
	// Message holds warnings, and advice if nothing fits.
	Message string `json:"message,omitempty"`
}

// SmokeResult is the answer of [Smoke]: the memory at each point of a training, and whether all of them are safe.
type SmokeResult struct {
	report.Smoke
	// Message holds warnings, and advice if the training is not safe.
	Message string `json:"message,omitempty"`
}

// Plan estimates the memory of training steps, whether they fit or not. Errors are an [*InputError], errors
// that wrap ctx.Err(), and errors of the machine, such as a file without permission to read.
func Plan(ctx context.Context, r Request) (*Response, error) {
	answer := &Response{Schema: report.ResponseSchema}
	var plan report.Report
	if _, err := ask(ctx, "plan", r, answer, &plan, &answer.Message); err != nil {
		return nil, err
	}
	answer.FillFrom(&plan)
	return answer, nil
}

// Fit finds the largest safe batch of each configuration (precision, checkpointing, strategy) on each GPU. If nothing
// fits, the answer says so, without an error. Errors are as for [Plan].
func Fit(ctx context.Context, r Request) (*FitResult, error) {
	answer := new(FitResult)
	return ask(ctx, "fit", r, answer, &answer.Fit, &answer.Message)
}

// Smoke judges a training at all its points: steps of all stages, evaluation, the longest sample. If it is not safe,
// the answer says so, without an error. Errors are as for [Plan].
func Smoke(ctx context.Context, r Request) (*SmokeResult, error) {
	answer := new(SmokeResult)
	return ask(ctx, "smoke", r, answer, &answer.Smoke, &answer.Message)
}

// An InputError says in a sentence what is wrong with a request or file, and what to do, in the command line's words.
type InputError struct{ error }

// Unwrap returns the cause.
func (e *InputError) Unwrap() error { return e.error }

// ask decodes the result of a verb and its warnings into parts of an answer, which it returns.
func ask[A any](ctx context.Context, verb string, r Request, answer *A, result any, message *string) (*A, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, &InputError{err}
	}
	if *message, err = cli.Ask(ctx, verb, text, result); input.IsBadInput(err) {
		return nil, &InputError{err}
	}
	if err != nil {
		return nil, err
	}
	return answer, nil
}
