package trainers

import (
	"encoding/json"
	"fmt"
	"slices"
)

// trustRemote is the key by which all trainers let a repository's own code describe the
// model.
const trustRemote = "trust_remote_code"

// CheckRemoteCode notes where the trainer may train other code than transformers' own: the
// file trusts the model's repository, and its config.json names classes there.
func (c *Config) CheckRemoteCode(model string) {
	v := c.doc.root.at(trustRemote)
	if v == nil {
		return
	}
	if texts, ok := v.scalars(); !ok || !slices.Contains([]string{"true", "True"}, first(texts)) {
		return
	}
	data, err := readConfig(model)
	if err != nil {
		return
	}
	var config struct {
		AutoMap map[string]json.RawMessage `json:"auto_map"`
	}
	if json.Unmarshal(data, &config) != nil || len(config.AutoMap) == 0 {
		return
	}
	at := Key{c.doc.file, v.line, trustRemote}
	c.Notes = append(c.Notes,
		fmt.Sprintf("%s: the model's %s names code of its repository (auto_map), which the trainer runs; planned is "+
			"transformers' own class, and the two may differ", at, usualName))
}

func first(texts []string) string {
	if len(texts) == 0 {
		return ""
	}
	return texts[0]
}
