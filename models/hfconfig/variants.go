package hfconfig

import (
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/llama"
)

// Settings of decoders that are built in another way than transformers does it, as
// torchtune's are.
const (
	repeatedSetting = "repeated-heads"
	separateSetting = "separate-projections"
)

// variants are those that make a difference to a configuration.
func variants(c llama.Config) []models.Setting {
	var all []models.Setting
	if c.KVHeads < c.Heads && !c.Eager && c.Latent.Rank == 0 {
		all = append(all, models.Setting{
			Name: repeatedSetting, Usage: "1 if keys and values are repeated for every head of the query, as torchtune does, 0 if attention shares them", Default: 0, Min: 0, Max: 1,
		})
	}
	if c.QKV == llama.OneProjection {
		all = append(all, models.Setting{
			Name: separateSetting, Usage: "1 if query, key, value, gate and up are projected one by one, as torchtune does, 0 if some at once", Default: 0, Min: 0, Max: 1,
		})
	}
	return all
}
