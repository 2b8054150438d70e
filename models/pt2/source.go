package pt2

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/pt2/cudnnanswers"
	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/models/pt2/lifetimes"
)

const (
	// Scheme is the prefix of the names of these models.
	Scheme = "pt2"
	// Suffix is the suffix of their files.
	Suffix = ".pt2"
)

// Source opens files for a registry. o is asked about convolutions that the answers file beside a model lacks; it
// may be nil.
func Source(o cudnnanswers.Source) models.Source {
	return models.Source{
		Scheme: Scheme, Suffix: Suffix,
		Open:    func(path string) (models.Model, error) { return open(path, o) },
		Restore: func(name, config string) (models.Model, error) { return restore(name, config, o) },
	}
}

func open(path string, o cudnnanswers.Source) (m models.Model, err error) {
	defer func() {
		if what := recover(); what != nil {
			reason := fmt.Sprintf(
				"the graph cannot be read: %v; it is damaged, or this is a bug of ours (please report it)", what)
			m, err = models.Model{}, &input.FormatError{File: path, Reason: reason}
		}
	}()
	if path == "" {
		return models.Model{}, input.FileErrorf(Scheme+":", "the path is missing; use --model path/to/model.pt2")
	}
	p, err := read(path)
	if err != nil {
		return models.Model{}, err
	}
	config, err := p.Describe()
	if err != nil {
		return models.Model{}, err
	}
	return newModel(path, Scheme+":"+strings.TrimSuffix(filepath.Base(path), Suffix), string(config), p, o)
}

// read reads the program of a file, and cuDNN's answers from the file beside it.
func read(path string) (*export.Program, error) {
	p, err := export.Open(path)
	if err != nil {
		return nil, err
	}
	if p.Asked, err = cudnnanswers.Read(cudnnanswers.FileOf(path)); err != nil {
		return nil, err
	}
	return p, complete(path, p)
}

// restore makes a model of the description in a result.
func restore(name, config string, o cudnnanswers.Source) (models.Model, error) {
	p, err := export.Restore([]byte(config))
	if err != nil {
		return models.Model{}, &input.FormatError{File: name, Reason: err.Error()}
	}
	if err := complete(name, p); err != nil {
		return models.Model{}, err
	}
	return newModel(name, name, config, p, o)
}

// complete corrects the dtypes of a program, removes artifacts of tracing, and finds what the nodes lack: lifetimes of
// values, and blocks, Functions and kernels of the model.
func complete(file string, p *export.Program) error {
	p.First = slices.DeleteFunc(p.First, func(first *export.Program) bool { return complete(file, first) != nil })
	followTypes(p)
	restoreCastArguments(p)
	castProducts(p)
	dropMasks(p)
	if err := lifetimes.Find(p); err != nil {
		return &input.FormatError{File: file, Reason: err.Error()}
	}
	p.Blocks, p.Functions, p.Kernels = blocks(p), append(customFunctions(p), capturedFunctions(p)...), ligerKernels(p)
	return nil
}

// newModel makes the entry of the registry for a program.
func newModel(file, name, config string, p *export.Program, o cudnnanswers.Source) (models.Model, error) {
	p.CuDNN = o
	g, err := newGraph(p)
	var unknown *UnknownOperatorsError
	switch {
	case errors.As(err, &unknown):
		unknown.File = file
		return models.Model{}, unknown
	case err != nil:
		return models.Model{}, &input.FormatError{File: file, Reason: err.Error()}
	}
	d := findDimensions(p)
	d.infer(g)
	m := models.Model{
		Name: name, Summary: cmp.Or(p.Class, "an exported PyTorch model"), Torch: p.Torch,
		Source: "torch.export, torch " + cmp.Or(p.Torch, "of unknown version"),
		Stages: []string{"full"}, Batches: d.batches(), BatchUnit: "sample",
		Settings: d.settings, HalfWeights: true, SupportsRanks: true, Description: models.Describe(config),
		Losses: Losses(), Free: true, UserModel: true, Adapts: true, Sized: true,
		Levers:  models.LeverSet{Loop: models.LoopFunction, Quantize: true, Recompute: true, QAT: true},
		Default: models.Case{Model: name, Stage: "full", Batch: d.defaultBatch(), Accumulate: 1, Blocks: p.Blocks},
	}
	m.Default.Weights = halfWeights(p)
	if p.Extra != nil {
		m.Default.CublasWorkspace = p.Extra.CublasWorkspace
	}
	if x := p.Extra; x != nil && len(x.Checkpointed)+len(x.Reentrant) > 0 {
		m.Default.Checkpointing = true
		m.Default.Blocks = strings.Join(append(slices.Clone(x.Checkpointed), x.Reentrant...), ",")
		if len(x.Checkpointed) == 0 {
			m.Default.Recompute = models.Reentrant
		}
	}
	if i, err := chooseOutput(p, ""); err == nil {
		m.Default.Loss, _ = defaultLoss(p.Results[i]) // without one, cases must name it
	}
	m.Levers.NoLiger = ligerProblem(p)
	m.Partial = len(ignoredParts(p)) > 0 || isDoubtful(p.Extra)
	m.Levers.Liger = m.Levers.NoLiger == ""
	m.Caveat = caveats(file, p, d)
	m.Check = func(c models.Case) error {
		if field, reason := hf.CheckLoss(c); reason != "" {
			return c.Wrong(field, "%s", reason)
		}
		if half := halfWeights(p); half != "" && c.Weights == "" {
			return c.Wrong("weights", "%s was captured with weights in %s: capture it with weights in fp32, or say "+
				"--weights %[2]s", file, half)
		}
		return d.check(file, c)
	}
	half := m.Default.Weights
	m.Build = func(c models.Case) (models.Trainer, error) {
		if c.Weights == half { // they are so: nothing is cast, neither buffers nor inputs
			c.Weights = ""
		}
		return newTrainer(g, d, c)
	}
	return m, nil
}

// halfWeights returns the type that all floating-point parameters of a program have, "" if it is not half precision.
func halfWeights(p *export.Program) models.WeightType {
	found := map[models.WeightType]bool{}
	for _, in := range p.Inputs {
		if in.Role != export.Parameter {
			continue
		}
		switch in.Type {
		case export.BFloat16:
			found["bf16"] = true
		case export.Half:
			found["fp16"] = true
		case export.Float, export.Double:
			found[models.FP32] = true
		}
	}
	for w := range found {
		if len(found) == 1 {
			return w
		}
	}
	return models.FP32
}

// caveats returns warnings about an incomplete graph: an exported graph has the operators of a custom
// autograd.Function's forward, but not its saved tensors and backward.
func caveats(file string, p *export.Program, d *dimensions) func(models.Case) []string {
	lines := ignoredParts(p)
	return func(c models.Case) []string {
		lines := slices.Clip(lines)
		if d.inferred && c.Batch != d.fixed {
			lines = append(lines, fmt.Sprintf("%s was exported with a batch of %d alone: which of its sizes follow it "+
				"was inferred; a file with dynamic_shapes, or of vprof capture, says it", file, d.fixed))
		}
		if c.Liger {
			lines = append(lines, ligerFindings(p, c))
		}
		if p.Extra != nil && len(p.Extra.First) > 0 && !hasFirstForward(p, c) {
			lines = append(lines, "forward does more in its first call, which may need more memory: planned are the "+
				"steps after it")
		}
		if p.Extra != nil && p.Extra.OtherWay != nil && int64(c.Batch) != captureBatch(p.Extra) {
			lines = append(lines, otherWay(p.Extra))
		}
		if p.Extra != nil && p.Extra.Scripted {
			lines = append(lines, "functions of torch.jit.script are planned as Python runs them: their own backward "+
				"may keep other tensors, under autocast above all")
		}
		if p.Extra != nil && len(p.Extra.Numbers) > 0 {
			lines = append(lines, fmt.Sprintf("what forward does depends on numbers in tensors, first at %s: "+
				"estimates follow the capture, and masks pick the same shares of elements",
				p.Extra.Numbers[0]))
		}
		return lines
	}
}

// hasFirstForward reports whether the case's first forward has its own graph.
func hasFirstForward(p *export.Program, c models.Case) bool {
	return c.Strategy == nil && slices.ContainsFunc(p.First, func(first *export.Program) bool {
		return findDimensions(first).check("", c) == nil
	})
}

// isDoubtful reports whether training may differ from the graph.
func isDoubtful(x *export.Extra) bool {
	return x != nil && (len(x.Numbers) > 0 || x.OtherWay != nil || x.Scripted)
}

// captureBatch returns the batch of the example that a model was captured with.
func captureBatch(x *export.Extra) int64 {
	for _, s := range x.Symbols {
		if s.Name == "batch" {
			return s.Example
		}
	}
	if x.Batch != nil {
		return x.Batch.Exported
	}
	return 0
}

func otherWay(x *export.Extra) string {
	return fmt.Sprintf("forward does something else at batch %d than at %d, with which it was captured, from %s on: "+
		"estimates follow batch %[2]d; capture it with --input 'NAME=TYPE[batch=N,...]' for batch N",
		x.OtherWay.Batch, captureBatch(x), x.OtherWay.Line)
}

// ignoredParts returns warnings about Functions whose backward is not in the graph.
func ignoredParts(p *export.Program) []string {
	var lines []string
	found := map[string]bool{}
	for _, f := range p.Functions {
		if f.Backward > 0 {
			continue
		}
		found[f.Name] = true
		lines = append(lines,
			fmt.Sprintf("%s (%s) is a custom autograd.Function, whose backward is not in the exported graph: "+
				"it is taken to keep the Function's tensor arguments and to make a gradient of each", f.Name, f.Line))
	}
	if p.Extra != nil {
		for _, f := range p.Extra.CustomFunctions {
			if found[f.Name[strings.LastIndexByte(f.Name, '.')+1:]] {
				continue
			}
			line := f.Name
			if f.Line != "" {
				line += " (" + f.Line + ")"
			}
			lines = append(lines,
				line+" is a custom autograd.Function: the exported graph does not have its backward, "+
					"so what it saves is estimated from the operators of its forward")
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}
