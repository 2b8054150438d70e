package pt2

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/profiler/trace"
)

// The names of the losses, as --loss has them.
const (
	CrossEntropy      = "cross-entropy"
	TokenCrossEntropy = "token-cross-entropy"
	MSE               = "mse"
	BCE               = "bce"
	L1                = "l1"
	Sum               = "sum"
	Output            = "output"
)

// Losses returns the names of all losses.
func Losses() []string { return []string{CrossEntropy, TokenCrossEntropy, MSE, BCE, L1, Sum, Output} }

// lossFunc computes the loss of an output. Its temporaries are freed when the statement ends.
type lossFunc func(f *trace.Frame, out *trace.Tensor) *trace.Tensor

// lossFuncs compute losses as a training loop does, with targets of zeros on the GPU: class indices, or fp32 tensors
// of the output's shape.
var lossFuncs = map[string]lossFunc{
	// F.cross_entropy(out, torch.zeros(b, *out.shape[2:], dtype=torch.long))
	CrossEntropy: func(f *trace.Frame, out *trace.Tensor) *trace.Tensor {
		shape := append([]int64{out.Size(0)}, out.Shape()[2:]...)
		return out.CrossEntropy(f.Tape().Zeros(trace.I64, shape...))
	},
	// F.cross_entropy(out.flatten(0, -2), torch.zeros(..., dtype=torch.long))
	TokenCrossEntropy: func(f *trace.Frame, out *trace.Tensor) *trace.Tensor {
		flat := out.Flatten(0, -2)
		return flat.CrossEntropy(f.Tape().Zeros(trace.I64, flat.Size(0)))
	},
	MSE: func(f *trace.Frame, out *trace.Tensor) *trace.Tensor {
		return out.MSELoss(f.Tape().Zeros(trace.F32, out.Shape()...), trace.ReduceMean)
	},
	L1: func(f *trace.Frame, out *trace.Tensor) *trace.Tensor {
		return out.L1Loss(f.Tape().Zeros(trace.F32, out.Shape()...), trace.ReduceMean)
	},
	BCE: func(f *trace.Frame, out *trace.Tensor) *trace.Tensor {
		return out.BCEWithLogits(f.Tape().Zeros(trace.F32, out.Shape()...), nil, trace.ReduceMean)
	},
	Sum:    func(_ *trace.Frame, out *trace.Tensor) *trace.Tensor { return out.Sum(false) },
	Output: func(_ *trace.Frame, out *trace.Tensor) *trace.Tensor { return out },
}

// chooseOutput returns the index of the output for the loss: the named one, a scalar named loss, or the first tensor.
func chooseOutput(p *export.Program, name string) (int, error) {
	if name == "" {
		if i := slices.IndexFunc(p.Results, isLoss); i >= 0 {
			return i, nil
		}
	}
	var names []string
	for i, r := range p.Results {
		if r.Value < 0 || r.Dims < 0 {
			continue
		}
		if name == "" || name == r.Name || name == fmt.Sprint(i) {
			return i, nil
		}
		if r.Name == "" {
			names = append(names, fmt.Sprint(i))
		} else {
			names = append(names, r.Name)
		}
	}
	if name == "" {
		return 0, fmt.Errorf("the model returns no tensor; export a model that returns logits or a loss")
	}
	return 0, fmt.Errorf("the model has no output %q; its outputs are %s", name, strings.Join(names, ", "))
}

func isLoss(r export.Result) bool {
	d, known := dtypes[r.Type]
	return r.Name == "loss" && r.Value >= 0 && r.Dims == 0 && known && d.IsFloat()
}

// defaultLoss returns the loss for an output when the case sets none.
func defaultLoss(r export.Result) (string, error) {
	d, known := dtypes[r.Type]
	switch {
	case known && d.IsFloat() && r.Dims == 0:
		return Output, nil
	case known && d.IsFloat() && r.Dims >= 2:
		return CrossEntropy, nil
	}
	return "", fmt.Errorf("the output is neither a loss nor logits with a dimension of classes; name a loss for it "+
		"with --loss, one of %s", strings.Join(Losses(), ", "))
}

func checkLoss(name string, r export.Result) error {
	d := dtypes[r.Type]
	switch {
	case lossFuncs[name] == nil:
		return fmt.Errorf("there is no loss %q; use one of %s", name, strings.Join(Losses(), ", "))
	case !d.IsFloat():
		return fmt.Errorf("the output has type %s, which has no gradients; choose another output with --loss LOSS:NAME",
			d.Torch())
	case name == Output && r.Dims != 0:
		return fmt.Errorf("the loss has %d dimensions, and a scalar is needed; name another with --loss, such as sum",
			r.Dims)
	case (name == CrossEntropy || name == TokenCrossEntropy) && r.Dims < 2:
		return fmt.Errorf("cross entropy needs an output with two dimensions, the batch and the classes, and this "+
			"one has %d; choose another loss or output with --loss LOSS:NAME", r.Dims)
	}
	return nil
}
