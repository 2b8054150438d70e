package main

import (
	"math"
)

// engineSamples asks which engine is chosen.
func engineSamples(cases []observation) []sample {
	s := make([]sample, len(cases))
	for i, c := range cases {
		s[i] = sample{c.x, float64(c.engine), c.weight}
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
		s = append(s, sample{c.x, splits, math.Sqrt(result)})
	}
	return s
}
