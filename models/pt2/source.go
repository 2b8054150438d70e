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
	// Scheme is the prefix of names of exported models.
	Scheme = "pt2"
	// Suffix is the file extension of exported models.
	Suffix = ".pt2"
)

// Source returns the registry's source of .pt2 files. o answers questions about cuDNN's choices for convolutions that
// the file beside a model lacks; it can be nil.
func Source(o cudnnanswers.Source) models.Source {
	return models.Source{
		Scheme: Scheme, Suffix: Suffix,
		Open:    func(path string) (models.Model, error) { return openFile(path, o) },
		Restore: func(name, config string) (models.Model, error) { return restoreModel(name, config, o) },
	}
}

func openFile(path string, o cudnnanswers.Source) (m models.Model, err error) {
	defer func() {
		if what := recover(); what != nil {
			reason := fmt.Sprintf("the graph cannot be read: %v; export the model again, and if that does not help, "+
				"this is a bug of vprof (please report it)", what)
			m, err = models.Model{}, &input.FormatError{File: path, Reason: reason}
		}
	}()
	if path == "" {
		return models.Model{}, input.FileErrorf(Scheme+":", "the path after the colon is missing; write --model "+
			"path/to/model.pt2")
	}
	p, err := readFile(path)
	if err != nil {
		return models.Model{}, err
	}
	config, err := p.Describe()
	if err != nil {
		return models.Model{}, err
	}
	return newModel(path, Scheme+":"+strings.TrimSuffix(filepath.Base(path), Suffix), string(config), p, o)
}

// readFile reads a program from a file, and cuDNN's answers from the file beside it.
func readFile(path string) (*export.Program, error) {
	p, err := export.Open(path)
	if err != nil {
		return nil, err
	}
	if p.Asked, err = cudnnanswers.Read(cudnnanswers.FileOf(path)); err != nil {
		return nil, err
	}
	return p, completeProgram(path, p)
}

func restoreModel(name, config string, o cudnnanswers.Source) (models.Model, error) {
	p, err := export.Restore([]byte(config))
	if err != nil {
		return models.Model{}, &input.FormatError{File: name, Reason: err.Error()}
	}
	if err := completeProgram(name, p); err != nil {
		return models.Model{}, err
	}
	return newModel(name, name, config, p, o)
}

// completeProgram corrects the data types of a program, removes artifacts of tracing, and finds what files without it
// lack: lifetimes of values, blocks, autograd.Functions and liger kernels.
func completeProgram(file string, p *export.Program) error {
	p.First = slices.DeleteFunc(p.First,
		func(first *export.Program) bool { return completeProgram(file, first) != nil })
	correctCastTypes(p)
	restoreCastArguments(p)
	castProducts(p)
	dropMasks(p)
	if err := lifetimes.Find(p); err != nil {
		return &input.FormatError{File: file, Reason: err.Error()}
	}
	p.Blocks, p.Functions, p.Kernels = blockPattern(p), append(customFunctions(p),
		capturedFunctions(p)...), ligerKernels(p)
	return nil
}

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
	d.inferBatchSizes(g)
	m := models.Model{
		Name: name, Summary: cmp.Or(p.Class, "an exported PyTorch model"), Torch: p.Torch,
		Source: "torch.export, torch " + cmp.Or(p.Torch, "of unknown version"),
		Stages: []string{"full"}, Batches: d.sweepBatches(), BatchUnit: "sample",
		Settings: d.settings, HalfWeights: true, SupportsRanks: true, Description: models.NewDescription(config),
		Losses: Losses(), SupportsPatterns: true, UserModel: true, SupportsLoRA: true, HasFixedSizes: true,
		Supports: models.MemoryOptionSupport{Loop: models.LoopFunction, Quantize: true, Recompute: true, QAT: true},
		Default:  models.Case{Model: name, Stage: "full", Batch: d.defaultBatch(), Accumulate: 1, Blocks: p.Blocks},
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
		m.Default.Loss, _ = defaultLoss(p.Results[i]) // empty if the case has to name one
	}
	m.Supports.NoLiger = ligerUnsupportedReason(p)
	m.IsPartial = len(missingBackwardNotes(p)) > 0 || mayDiffer(p.Extra)
	m.Supports.Liger = m.Supports.NoLiger == ""
	m.Caveat = newCaveats(file, p, d)
	m.Check = func(c models.Case) error {
		if field, reason := hf.CheckLoss(c); reason != "" {
			return c.FieldError(field, "%s", reason)
		}
		if half := halfWeights(p); half != "" && c.Weights == "" {
			return c.FieldError("weights", "%s was captured with weights in %s: capture it with weights in fp32, or "+
				"say --weights %[2]s", file, half)
		}
		return d.checkBatch(file, c)
	}
	half := m.Default.Weights
	m.Build = func(c models.Case) (models.Trainer, error) {
		if c.Weights == half { // the file's weights already have this type: no cast is needed
			c.Weights = ""
		}
		return newTrainer(g, d, c)
	}
	return m, nil
}

// halfWeights returns the half-precision type that all floating-point parameters have; "" if they have another.
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

// newCaveats returns a function that lists warnings about a graph that lacks parts, such as the backward of a custom
// autograd.Function.
func newCaveats(file string, p *export.Program, d *dimensions) func(models.Case) []string {
	lines := missingBackwardNotes(p)
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
			lines = append(lines, otherGraphNote(p.Extra))
		}
		if p.Extra != nil && p.Extra.Scripted {
			lines = append(lines, "functions of torch.jit.script are planned as Python runs them: their own backward "+
				"may keep other tensors, under autocast above all")
		}
		if p.Extra != nil && len(p.Extra.Numbers) > 0 {
			lines = append(lines, fmt.Sprintf("what forward does depends on numbers in tensors, first at %s: "+
				"estimates follow the capture, and masks pick the same shares of elements", p.Extra.Numbers[0]))
		}
		return lines
	}
}

// hasFirstForward reports whether the case's first forward pass has its own graph.
func hasFirstForward(p *export.Program, c models.Case) bool {
	return c.Strategy == nil && slices.ContainsFunc(p.First, func(first *export.Program) bool {
		return findDimensions(first).checkBatch("", c) == nil
	})
}

// mayDiffer reports whether training may run other code than the graph.
func mayDiffer(x *export.Extra) bool {
	return x != nil && (len(x.Numbers) > 0 || x.OtherWay != nil || x.Scripted)
}

// captureBatch returns the batch size of the example with which a model was captured.
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

func otherGraphNote(x *export.Extra) string {
	return fmt.Sprintf("forward does something else at batch %d than at %d, with which it was captured, from %s on: "+
		"estimates follow batch %[2]d; capture it with --input 'NAME=TYPE[batch=N,...]' for batch N",
		x.OtherWay.Batch, captureBatch(x), x.OtherWay.Line)
}

// missingBackwardNotes returns warnings about autograd.Functions whose backward is not in the graph.
func missingBackwardNotes(p *export.Program) []string {
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
