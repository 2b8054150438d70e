package export

import (
	"encoding/json"
	"math"
	"strconv"
)

// RealNumber is an argument of floating point, infinities and NaN among them, for which
// JSON has no numbers: masks are filled with -inf.
type RealNumber float64

// MarshalJSON writes what UnmarshalJSON reads.
func (r RealNumber) MarshalJSON() ([]byte, error) {
	if f := float64(r); math.IsInf(f, 0) || math.IsNaN(f) {
		return json.Marshal(strconv.FormatFloat(f, 'g', -1, 64))
	}
	return json.Marshal(float64(r))
}

// UnmarshalJSON reads a number, or "-Inf", "+Inf" and "NaN".
func (r *RealNumber) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) != nil {
		return json.Unmarshal(data, (*float64)(r))
	}
	f, err := strconv.ParseFloat(text, 64)
	*r = RealNumber(f)
	return err
}
