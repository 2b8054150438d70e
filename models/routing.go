package models

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// The values of [Levers.Routing].
const (
	balancedRouting = "balanced"
	worstRouting    = "worst"
	skewedRouting   = "skew="
)

func parseRouting(text string) (func(*Case), error) {
	factor, skewed := strings.CutPrefix(text, skewedRouting)
	f, err := strconv.ParseFloat(factor, 64)
	switch {
	case skewed && (err != nil || !(f >= 1) || math.IsInf(f, 1)):
		return nil, fmt.Errorf("%q is not %sF, F being how many times as many tokens as with balanced routing come to "+
			"the rank, 1 or more", text, skewedRouting)
	case !skewed && text != balancedRouting && text != worstRouting:
		return nil, fmt.Errorf("%q is neither %s, %s nor %sF", text, balancedRouting, worstRouting, skewedRouting)
	case text == balancedRouting:
		text = ""
	}
	return func(c *Case) { c.Routing = text }, nil
}

// Skew is how many times as many tokens come to a rank with some experts as if all were chosen equally often.
func (l Levers) Skew() float64 {
	if factor, skewed := strings.CutPrefix(l.Routing, skewedRouting); skewed {
		f, err := strconv.ParseFloat(factor, 64)
		if err == nil {
			return f
		}
	}
	if l.Routing == worstRouting {
		return math.Inf(1)
	}
	return 1
}
