package hfconfig

import (
	_ "embed"
	"encoding/json"
	"sync"
)

// hubConfigs are configurations of models on the Hugging Face hub by their names, each as a public repository has it.
//
//go:embed hub.json
var hubConfigs []byte

// A hubConfig is the configuration of a model on the hub, where it was read, and when; or the name of another model
// that has the same.
type hubConfig struct {
	Same   string          `json:"same"`
	Source string          `json:"source"`
	Read   string          `json:"read"`
	Config json.RawMessage `json:"config"`
}

// ofHub returns the configurations by the names of their models.
var ofHub = sync.OnceValue(func() map[string]hubConfig {
	var all map[string]hubConfig
	if err := json.Unmarshal(hubConfigs, &all); err != nil {
		panic(err) // embedded
	}
	return all
})

// OfHub returns the configuration of a model on the hub by its name, where the binary has it.
func OfHub(name string) (config []byte, known bool) {
	c, known := ofHub()[name]
	if c.Same != "" {
		c = ofHub()[c.Same]
	}
	return c.Config, known
}
