package forest

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// Cuts are the thresholds with which the trees of some forests compare features.
type Cuts struct {
	values []float32 // by feature, then ascending
	// of is the index of each feature's first cut, and at its end the number of all cuts.
	of [Features + 1]int32
}

// cutsOf collects the thresholds of forests.
func cutsOf(forests []TrainedForest) *Cuts {
	var of [Features][]float32
	for _, f := range forests {
		for _, b := range f.Trees {
			b.thresholds(&of)
		}
	}
	c := &Cuts{}
	for feature, values := range of {
		slices.Sort(values)
		c.values = append(c.values, slices.Compact(values)...)
		c.of[feature+1] = int32(len(c.values))
	}
	return c
}

// find returns the index of a feature's threshold.
func (c *Cuts) find(feature int, threshold float32) int32 {
	first := c.of[feature]
	at, _ := slices.BinarySearch(c.values[first:c.of[feature+1]], threshold)
	return first + int32(at)
}

// Most cuts have few decimal digits: they are multiples of a power of ten, their unit.
const (
	units         = 30
	leastExponent = -8
	one           = -leastExponent // 10^0
)

var unitPowers = func() (p [units]float64) {
	for i := range p {
		p[i] = math.Pow(10, float64(i+leastExponent))
	}
	return p
}()

// inUnits returns a threshold as a multiple of the largest unit that represents it exactly; ok is false without one.
func inUnits(v float32) (multiple int64, unit int, ok bool) {
	for unit := units - 1; unit >= 0 && v > 0; unit-- {
		m := math.Round(float64(v) / unitPowers[unit])
		if m < 1<<40 && float32(m*unitPowers[unit]) == v {
			return int64(m), unit, true
		}
	}
	return 0, 0, false
}

// cutModel predicts a feature's next cut from its previous one.
type cutModel struct {
	before       float64
	unit, length int // of the cut before, and binary digits of the gap before it
}

func newCutModel() cutModel { return cutModel{unit: one} }

// Symbols of stepCode: the change of unit with the length of the gap, and three special ones.
const (
	unitSteps   = 9
	gapLengths  = 16
	farStep     = unitSteps * gapLengths // unit and length follow
	nextFeature = farStep + 1
	rawCut      = farStep + 2 // all bits follow
	stepSymbols = farStep + 3

	unitWidth, lengthWidth = 5, 6
)

// context returns the context of the next step.
func (m *cutModel) context() int { return m.unit*gapLengths + min(m.length, gapLengths-1) }

// floor returns the previous cut in units of the given index, rounded down.
func (m *cutModel) floor(unit int) int64 { return int64(m.before/unitPowers[unit] + 1e-9) }

// add returns the cut that is gap above the previous one. It becomes the previous cut.
func (m *cutModel) add(unit int, gap int64) float32 {
	v := float32(float64(m.floor(unit)+gap) * unitPowers[unit])
	m.before, m.unit, m.length = float64(v), unit, bits.Len64(uint64(gap))
	return v
}

func (c *Cuts) write(w *writer) {
	for feature := range Features {
		m := newCutModel()
		for _, v := range c.values[c.of[feature]:c.of[feature+1]] {
			m.write(w, v)
		}
		if int(c.of[feature+1]) < len(c.values) {
			w.symbol(stepCode, m.context(), nextFeature)
		}
	}
}

func (m *cutModel) write(w *writer, v float32) {
	multiple, unit, ok := inUnits(v)
	gap := multiple - m.floor(unit)
	if !ok || gap < 0 {
		w.symbol(stepCode, m.context(), rawCut)
		w.bits(uint64(math.Float32bits(v)), 32)
		return
	}
	length, step := bits.Len64(uint64(gap)), unit-m.unit+unitSteps/2
	if length < gapLengths && step >= 0 && step < unitSteps {
		w.symbol(stepCode, m.context(), step*gapLengths+length)
	} else {
		w.symbol(stepCode, m.context(), farStep)
		w.bits(uint64(unit), unitWidth)
		w.bits(uint64(length), lengthWidth)
	}
	rest := max(length-1, 0)
	w.bits(uint64(gap)&(1<<rest-1), rest)
	m.add(unit, gap)
}

// DecodeCuts decodes the cuts of forests and returns the remaining bytes.
func DecodeCuts(b []byte) (*Cuts, []byte, error) {
	d := decoder{b: b}
	count := d.count("cuts", math.MaxInt32)
	r := newReader(d.readPart("cuts"))
	c := &Cuts{values: make([]float32, 0, count)}
	feature, m := 0, newCutModel()
	for d.err == nil && len(c.values) < count {
		symbol := r.symbol(stepCode, m.context())
		switch {
		case symbol == nextFeature && feature == Features-1:
			d.err = fmt.Errorf("cuts name feature %d, and there are only %d", Features, Features)
		case symbol == nextFeature:
			feature++
			c.of[feature], m = int32(len(c.values)), newCutModel()
		case symbol == rawCut:
			c.values = append(c.values, math.Float32frombits(uint32(r.bits(32))))
		default:
			c.values = append(c.values, m.read(r, symbol))
		}
		if r.failed() {
			d.err = fmt.Errorf("the data end after %d cuts of %d", len(c.values), count)
		}
	}
	if d.err != nil {
		return nil, nil, fmt.Errorf("forest: %w", d.err)
	}
	for feature++; feature <= Features; feature++ {
		c.of[feature] = int32(count)
	}
	return c, d.b, nil
}

func (m *cutModel) read(r *reader, symbol int) float32 {
	unit, length := m.unit+symbol/gapLengths-unitSteps/2, symbol%gapLengths
	if symbol == farStep {
		unit, length = int(r.bits(unitWidth)), int(r.bits(lengthWidth))
	}
	gap := int64(0)
	if length > 0 && length <= 40 {
		gap = 1<<(length-1) | int64(r.bits(length-1))
	}
	return m.add(min(max(unit, 0), units-1), gap)
}
