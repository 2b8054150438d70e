package cudnn

import "github.com/vprof/vprof/internal/lists"

// Study exposes the data from which the rules are learned, for command fit and for tests: the features of a case and
// the workspace of each choice.
type Study struct{ p problem }

// NewStudy prepares a case.
func NewStudy(c Config, d Direction, gpu GPU) Study { return Study{newProblem(c, d, &gpu)} }

// Features returns the values the rules compare.
func (s Study) Features() []float32 {
	f := s.p.features()
	return f[:]
}

// Operation names the operation, as the files of rules do.
func (s Study) Operation() string { return kindNames[s.p.kind] }

// Generation returns the architecture whose rules hold for a GPU.
func Generation(gpu GPU) int { return generation(gpu.Capability) }

// Bytes returns the workspace of a choice.
func (s Study) Bytes(c Choice) int64 { return s.p.bytes(c) }

// Splits reports whether engines of class e may split the reduction.
func (s Study) Splits(e Engine) bool { return e.splits() }

// Tiled reports whether the workspace of a split reduction depends on the tile, for engines of class e.
func (s Study) Tiled(e Engine) bool { return e == Serial || e == LoopedSerial || e == Hopper }

// Can reports whether engine class e exists for the case.
func (s Study) Can(e Engine) bool { return s.p.can(e) }

// Engines returns all engine classes.
func Engines() []Engine {
	return lists.Make(int(numEngines), func(i int) Engine { return Engine(i) })
}
