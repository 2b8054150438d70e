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

// hubConfigs are configurations of public models on the Hugging Face hub, by model name.
//
//go:embed hub.json
var hubConfigs []byte

// A hubConfig is the configuration of a model on the hub, with its source and date. Same is instead the name of a model
// with the same configuration; Source may then be set, too.
type hubConfig struct {
	Same   string          `json:"same"`
	Source string          `json:"source"`
	Read   string          `json:"read"`
	Config json.RawMessage `json:"config"`
}

// ofHub returns the embedded configurations by model name.
var ofHub = sync.OnceValue(func() map[string]hubConfig {
	var all map[string]hubConfig
	if err := json.Unmarshal(hubConfigs, &all); err != nil {
		panic(err) // embedded
	}
	return all
})

// Named returns the names and configurations of all models that the binary contains.
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

// OfHub returns the configuration of a model on the hub, if the binary contains it.
func OfHub(name string) (config []byte, known bool) {
	c, known := hubEntry(name)
	return c.Config, known
}

// hubEntry returns the configuration of a model on the hub, of any upper or lower case. Same is resolved.
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

// A HubModel is a model of the Hugging Face hub whose configuration the binary contains.
type HubModel struct {
	Name string `json:"name"`
	Type string `json:"model_type"`
	// Source is where the configuration was found, Read the date.
	Source string `json:"source"`
	Read   string `json:"read"`
}

// HubModels returns the models of the hub whose configurations the binary contains, sorted by name.
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
