package step

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device"
)

// Setup is a complete case of a model, ready for trials and estimates. It is immutable: a changed case is a new setup.
type Setup struct {
	model    models.Model
	c        models.Case
	conf     allocator.Config
	evidence Evidence
	// reportCase is the case as written to reports.
	reportCase report.Case
	// otherProcessBytes is the memory of other processes on the GPU, in bytes.
	otherProcessBytes int64
	// device runs the trials that name it (ReplayOptions.Device); nil if there is none.
	device device.Device
	// parts are the other stages of a curriculum, which train with the same batch size; part is the name of this stage.
	parts []Part
	part  string
}

// A Part is a stage of a curriculum: its name, and the settings that replace the case's.
type Part struct {
	Name     string          `json:"name"`
	Settings models.Settings `json:"settings"`
}

// New makes a setup of the completed case. The error is a [*models.CaseError], or PyTorch's about allocator settings.
func New(m models.Model, c models.Case, e Evidence) (*Setup, error) {
	c, err := m.Complete(c)
	if err != nil {
		return nil, err
	}
	release, err := c.Release()
	if err != nil {
		return nil, err
	}
	conf, err := release.Allocator().Parse(c.AllocConf)
	if err != nil {
		return nil, input.Errorf("%w", err)
	}
	if e.stepCounts == nil {
		e.stepCounts = &stepCounts{}
	}
	return &Setup{model: m, c: c, conf: conf, evidence: e, reportCase: report.CaseOf(m, c)}, nil
}

// NewFromReport makes the setup of a case in a report. The error is a [*models.UnknownModelError], an error of [New],
// or the error of opening the model.
func NewFromReport(r *models.Registry, c report.Case, e Evidence) (*Setup, error) {
	m, err := r.ModelForCase(c.Case, c.Description())
	if err != nil {
		return nil, err
	}
	return New(m, c.Case, e)
}

// Model returns the model that is trained.
func (s *Setup) Model() models.Model { return s.model }

// Case returns the complete case, with every default filled in.
func (s *Setup) Case() models.Case { return s.c }

// Allocator returns the case's allocator settings, parsed.
func (s *Setup) Allocator() allocator.Config { return s.conf }

// Evidence returns the residuals and coefficients that the setup's estimates use.
func (s *Setup) Evidence() Evidence { return s.evidence }

// Trial returns a trial of the case at the given batch size, replayed without a memory limit.
func (s *Setup) Trial(gpu device.GPU, batch int) Trial {
	return Trial{Case: s.reportCase, Batch: batch, GPU: gpu, setup: s}
}

// Try runs a trial. Errors are the same as for [Executor].
func (s *Setup) Try(ctx context.Context, t Trial) (*Result, error) {
	var e Executor = Local{Device: s.device}
	if s.evidence.Trials != nil && t.Replay.Device == "" {
		e = s.evidence.Trials
	}
	r, err := e.Try(ctx, t)
	if err == nil && r.trial.setup == nil { // it was run elsewhere
		r.trial = t
	}
	return r, err
}

// HasReservedJumps reports whether reserved bytes may jump between neighboring batch sizes. With max_split_size_mb, a
// large block serves only requests of nearly its size, so tensors that just reach the size leave many unused blocks:
// wav2vec2-base on an RTX 4070 with activations on the host and 128 MiB may reserve 11.2 GiB at batch 4 and 1.8 GiB at
// batch 5. roundup_power2_divisions makes many sizes equal, whose blocks are then reused: patch-vqvae with 4 divisions
// needs 1.3 times as much at batch 448 as at 464.
func (s *Setup) HasReservedJumps() bool {
	rounds := func(divisions uint64) bool { return divisions > 1 }
	return s.conf.MaxSplit != allocator.Unlimited || slices.ContainsFunc(s.conf.Roundup[:], rounds)
}

// WithDevice returns the setup with a device on which its trials may run in this process.
func (s *Setup) WithDevice(d device.Device) *Setup {
	other := *s
	other.device = d
	return &other
}

// WithOtherProcesses returns the setup for GPUs on which other processes use the given bytes.
func (s *Setup) WithOtherProcesses(others int64) *Setup {
	other := *s
	other.otherProcessBytes = others
	return &other
}

// WithCase returns the setup of another complete case of the model.
func (s *Setup) WithCase(c models.Case) *Setup {
	other := *s
	other.c = c
	other.reportCase.Case = s.model.Canonical(c)
	other.reportCase.Batch = 0
	return &other
}

// WithParts returns the setup with the other stages of its curriculum, which train with the same batch size.
func (s *Setup) WithParts(parts []Part) *Setup {
	other := *s
	other.parts = parts
	return &other
}

// PartSetups returns the setups of the curriculum's other stages; nil without a curriculum.
func (s *Setup) PartSetups() []*Setup {
	return lists.Map(s.parts, func(p Part) *Setup {
		other := s.WithSettings(p.Settings)
		other.part = p.Name
		return other
	})
}

// Part returns the name of the setup's stage of a curriculum; empty for the case itself.
func (s *Setup) Part() string { return s.part }

// WithSettings returns the setup with some settings changed.
func (s *Setup) WithSettings(changed models.Settings) *Setup {
	c := s.c
	c.Settings = maps.Clone(c.Settings)
	maps.Copy(c.Settings, changed)
	return s.WithCase(c)
}

// WithAccumulation returns the setup with another number of micro-batches per optimizer step.
func (s *Setup) WithAccumulation(n int) *Setup {
	c := s.c
	c.Accumulate = n
	return s.WithCase(c)
}

// LoopSetups returns the case in each training loop that it may have: its own and, if no flag chose one, the plain
// loop, which keeps the most memory alive. A batch must be safe in both.
func (s *Setup) LoopSetups() []*Setup {
	c, unchosen := s.model.LargestLoopCase(s.c)
	if !unchosen || s.model.Supports.Loop == models.LoopPlain {
		return []*Setup{s}
	}
	return []*Setup{s, s.WithCase(c)}
}

// WithLargestLoop returns the case in the training loop, of those possible, that keeps the most memory alive.
func (s *Setup) WithLargestLoop() *Setup {
	loops := s.LoopSetups()
	return loops[len(loops)-1]
}

// Loop returns the name of the training loop; empty if the model has its own.
func (s *Setup) Loop() models.Loop { return cmp.Or(s.c.Loop, s.model.Supports.Loop) }

// Evaluates reports whether training includes evaluation: at the user's request, or in the project's training loop.
func (s *Setup) Evaluates() bool {
	return !s.c.Evaluate.IsOff && (!s.c.Evaluate.IsZero() || s.model.Supports.Loop == "")
}

// TrainingTrial returns a trial that also records an evaluation batch, if the case evaluates, but replays only the
// training steps. An evaluation batch size of zero is the evaluation's own, else the project's, else the training's.
func (s *Setup) TrainingTrial(t Trial, evaluation int) Trial {
	t.Replay.TrainingOnly = true
	if !s.c.Evaluate.IsOff {
		t.Validation = cmp.Or(evaluation, s.c.Evaluate.Batch, s.model.Validation, t.Batch)
	}
	return t
}
