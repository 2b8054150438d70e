package main

import (
	"math"

	"github.com/vprof/vprof/profiler/trace/cudnn"
)

// engineSamples asks which engine is chosen.
func engineSamples(cases []observation) []sample {
	s := make([]sample, len(cases))
	for i, c := range cases {
		s[i] = sample{c.x, float64(c.engine), c.weight, costs(c)}
	}
	return s
}

// splitSamples asks, of the engines that may split, how many fp32 results they
// keep as partial sums: what is left of the workspace after the copies, over
// the size of the result. Counts within 2 % of a whole number are whole.
func splitSamples(cases []observation) []sample {
	var s []sample
	for _, c := range cases {
		if !c.study.Splits(c.engine) {
			continue
		}
		result := float64(c.study.Result32(c.engine))
		splits := float64(c.bytes-c.study.Bytes(c.engine)-small/8) / result
		if splits < 0 {
			splits = 0
		}
		if r := math.Round(splits); r > 0 && math.Abs(splits-r) < 0.02*r {
			splits = r
		}
		s = append(s, sample{x: c.x, answer: splits, weight: math.Sqrt(result)})
	}
	return s
}

// costs is how wrong each engine class would be for a case, from 0 to 1: the
// difference in bytes over the larger. Partial sums count as found for the
// classes that may have them.
func costs(c observation) []float32 {
	var partial int64
	if c.study.Splits(c.engine) {
		partial = max(c.bytes-c.study.Bytes(c.engine), 0)
	}
	var out []float32
	for _, e := range cudnn.Engines() {
		n := c.study.Bytes(e)
		if c.study.Splits(e) {
			n += partial
		}
		cost := float32(1)
		switch {
		case e == c.engine:
			cost = 0
		case c.study.Can(e) && max(n, c.bytes) > 0:
			cost = float32(math.Abs(float64(n-c.bytes)) / float64(max(n, c.bytes)))
		}
		out = append(out, cost)
	}
	return out
}
