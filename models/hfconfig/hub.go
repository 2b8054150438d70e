package hfconfig

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/vprof/vprof/internal/lists"
)

// hubConfigs are configurations of models on the Hugging Face hub by their names, each as in a public repository.
//
//go:embed hub.json
var hubConfigs []byte

// A hubConfig is the configuration of a model on the hub, with its source and date; or the name of another model with
// the same configuration, with a source of its own if it has one.
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

// Named returns the names and configurations of all models that the binary has.
func Named() map[string]any {
	all := map[string]any{}
	for name := range ofHub() {
		config, _ := OfHub(name)
		all[name] = json.RawMessage(config)
	}
	for _, l := range allListed() {
		all[l.Name] = l.Config
	}
	return all
}

// OfHub returns the configuration of a model on the hub by its name, where the binary has it.
func OfHub(name string) (config []byte, known bool) {
	c, known := hubEntry(name)
	return c.Config, known
}

// hubEntry returns the entry of a name in upper or lower case, with the configuration of the model it refers to.
func hubEntry(name string) (c hubConfig, known bool) {
	c, known = ofHub()[name]
	if !known {
		for other, entry := range ofHub() {
			if strings.EqualFold(other, name) {
				c, known = entry, true
			}
		}
	}
	if c.Same != "" {
		same := ofHub()[c.Same]
		c.Config, c.Source, c.Read = same.Config, cmp.Or(c.Source, same.Source), same.Read
	}
	return c, known
}

// A HubModel is a model of the Hugging Face hub whose configuration the binary has.
type HubModel struct {
	Name string `json:"name"`
	Type string `json:"model_type"`
	// Source is where the configuration was read, and Read when.
	Source string `json:"source"`
	Read   string `json:"read"`
}

// HubModels returns the models of the hub that [OfHub] knows, by name.
func HubModels() []HubModel {
	return lists.Map(slices.Sorted(maps.Keys(ofHub())), func(name string) HubModel {
		c, _ := hubEntry(name)
		var config struct {
			Type string `json:"model_type"`
		}
		if err := json.Unmarshal(c.Config, &config); err != nil {
			panic(err) // embedded
		}
		return HubModel{name, config.Type, c.Source, c.Read}
	})
}
