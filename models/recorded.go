package models

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
)

// changed is the first field, by its key in files, in which a filled case differs from the only one
// of a recorded run; empty if none does. Allocator settings may differ.
func (m Model) changed(c Case) string {
	if !m.Recorded {
		return ""
	}
	asked, recorded := c.values(), m.filled(m.Default).values()
	keys := maps.Clone(recorded)
	maps.Copy(keys, asked)
	delete(keys, "alloc_conf")
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !bytes.Equal(asked[key], recorded[key]) {
			return key
		}
	}
	return ""
}

// values are the fields of a case by their keys in files, without those that are absent there.
func (c Case) values() map[string]json.RawMessage {
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(c.Key()), &all); err != nil {
		panic(err) // Key has written it
	}
	return all
}
