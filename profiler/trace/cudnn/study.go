package cudnn

// Study exposes what the rules are found from, for command fit and for tests:
// the features of a case and what each engine class would ask for.
type Study struct{ p problem }

// NewStudy prepares a case.
func NewStudy(c Config, d Direction, b Board) Study {
	return Study{newProblem(c, d, &b)}
}

// FeatureNames are the names of the features, in order.
func FeatureNames() []string { return featureNames[:] }

// Features are the values the rules compare.
func (s Study) Features() []float32 {
	f := s.p.features()
	return f[:]
}

// Tree names the rules that apply: operation and precision.
func (s Study) Tree() string {
	half := 0
	if s.p.DType != F32 {
		half = 1
	}
	return kindNames[s.p.kind] + " " + precisionNames[half]
}

// Bytes is the workspace of engine class e without partial sums.
func (s Study) Bytes(e Engine) int64 { return s.p.bytes(e) }

// Result32 is the size of the fp32 result as e pads it.
func (s Study) Result32(e Engine) int64 { return s.p.result32(e) }

// Splits says whether e may keep partial sums.
func (s Study) Splits(e Engine) bool { return e.splits() }

// TensorBytes is the size of x, w and y together.
func (s Study) TensorBytes() int64 {
	p := &s.p
	return (p.N*(p.c*p.xs+p.k*p.ys) + p.k*p.cg*p.taps) * p.es
}

// Can says whether engine class e exists for the case.
func (s Study) Can(e Engine) bool { return s.p.can(e) }

// Engines are all engine classes.
func Engines() []Engine {
	all := make([]Engine, numEngines)
	for i := range all {
		all[i] = Engine(i)
	}
	return all
}
