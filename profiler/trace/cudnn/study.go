package cudnn

import "github.com/vprof/vprof/internal/lists"

// Study gives access to the data from which the rules are learned, for command fit and for tests: the features of a
// case and the workspace of each choice.
type Study struct{ p problem }

// NewStudy returns the study of one direction of a convolution.
func NewStudy(c Config, d Direction, gpu GPU) Study { return Study{newProblem(c, d, &gpu)} }

// Features returns the values that the rules compare.
func (s Study) Features() []float32 {
	f := s.p.features()
	return f[:]
}

// Operation returns the operation's name in the rules' file names.
func (s Study) Operation() string { return kindNames[s.p.kind] }

// Generation returns the compute capability whose rules apply to a GPU.
func Generation(gpu GPU) int { return generation(gpu.Capability) }

// Bytes returns the workspace bytes of a choice.
func (s Study) Bytes(c Choice) int64 { return s.p.workspaceBytes(c) }

// Splits reports whether engines of class e may split the reduction.
func (s Study) Splits(e Engine) bool { return e.splits() }

// Tiled reports whether the workspace of a split reduction depends on the tile, for engines of class e.
func (s Study) Tiled(e Engine) bool { return e == Serial || e == LoopedSerial || e == Hopper }

// Can reports whether engines of class e exist for the case.
func (s Study) Can(e Engine) bool { return s.p.supportsEngine(e) }

// Engines returns all engine classes.
func Engines() []Engine {
	return lists.Make(int(numEngines), func(i int) Engine { return Engine(i) })
}
