// Package all lists the models of all packages under models. It is separate since these packages import package models.
package all

import (
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hfconfig"
	"github.com/vprof/vprof/models/naics"
	"github.com/vprof/vprof/models/pt2"
	"github.com/vprof/vprof/models/pt2/cudnnanswers"
	"github.com/vprof/vprof/models/recorded"
	"github.com/vprof/vprof/models/redimnet"
	"github.com/vprof/vprof/models/resnet"
	"github.com/vprof/vprof/models/specgan"
	"github.com/vprof/vprof/models/spoter"
	"github.com/vprof/vprof/models/unet"
	"github.com/vprof/vprof/models/vit"
	"github.com/vprof/vprof/models/vqvae"
)

// Models returns the registry of all models that vprof supports.
func Models() *models.Registry { return ModelsWithSources(nil, "") }

// ModelsWithSources returns [Models] with a source of cuDNN's answers for .pt2 files (nil for none) and a folder of
// steps recorded under torch.compile (empty for none).
func ModelsWithSources(o cudnnanswers.Source, steps string) *models.Registry {
	return WithFiles(models.NewRegistry(
		redimnet.Models(),
		vqvae.Models(),
		specgan.Models(),
		spoter.Models(),
		naics.Models(),
		vit.Models(), hfconfig.Listed("vit"),
		resnet.Models(),
		unet.Models(),
		hfconfig.Listed("bert", "gpt2", "llama", "whisper", "wav2vec2"),
	), o, steps)
}

// WithFiles adds sources of users' models to a registry: files, and compiled steps in a folder.
func WithFiles(r *models.Registry, o cudnnanswers.Source, steps string) *models.Registry {
	for _, s := range []models.Source{
		hfconfig.Source(), pt2.Source(o), recorded.Source(o),
	} {
		r = r.WithSource(s)
	}
	return r.WithSteps(recorded.CompiledSteps(steps, o))
}
