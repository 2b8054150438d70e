package models

import (
	"bytes"
	"encoding/json"
)

// Difference is a field in which two cases differ.
type Difference struct {
	// About is what tables call the field, and A and B are its values; empty where the model decides.
	About, A, B string
	// Case is the first case with the second one's values of this field and of those before it.
	Case Case
}

// Differences are the fields in which two cases differ, in the order in which a line about a case says them.
func Differences(a, b Case) []Difference {
	last := map[string]int{} // of several fields in one object of the file, the last says it as a whole
	for i := range fields {
		last[fields[i].JSON] = i
	}
	from, to := a.values(), b.values()
	var all []Difference
	for i := range fields {
		f := &fields[i]
		if last[f.JSON] != i || bytes.Equal(from[f.JSON], to[f.JSON]) {
			continue
		}
		if from[f.JSON] = to[f.JSON]; to[f.JSON] == nil {
			delete(from, f.JSON)
		}
		d := Difference{About: f.About(), A: f.Text(a), B: f.Text(b)}
		text, err := json.Marshal(from)
		if err == nil {
			err = json.Unmarshal(text, &d.Case)
		}
		if err != nil {
			panic(err) // each value is one of a case
		}
		all = append(all, d)
	}
	return all
}
