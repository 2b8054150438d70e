package fit

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/progress"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/planner"
)

// Profiles returns recommendations for the stages of a project's curriculum, in the precision of its authors, within
// the budget on the search's single GPU. The effective batch is the search's or, without one, the project's.
func Profiles(ctx context.Context, s Search, lookup func(string) (models.Model, error)) ([]report.Profile, error) {
	s.Effective = cmp.Or(s.Effective, s.Model.Curriculum.EffectiveBatch)
	parts := s.Model.Curriculum.Parts
	out := make([]report.Profile, len(parts))
	err := progress.Each(ctx, nil, "", parts, func(ctx context.Context, i int, p models.CurriculumPart) (err error) {
		s := s
		if s.Model, err = lookup(p.Model); err != nil {
			return err
		}
		c := s.commonSettings(s.Model.Default)
		choice, refused, err := s.largestBatch(ctx, s.GPUs[0], c, planner.Start{Batch: c.Batch})
		if err = errors.Join(refused, err); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		out[i] = report.Profile{Name: p.Name, Settings: p.Settings, Choice: choice}
		return nil
	})
	return out, err
}

// commonSettings returns a case with the settings that all cases share: the allocator's and PyTorch's release.
func (s *Search) commonSettings(c models.Case) models.Case {
	if len(s.Cases) > 0 {
		c.AllocConf, c.Torch = s.Cases[0].AllocConf, s.Cases[0].Torch
	}
	return c
}
