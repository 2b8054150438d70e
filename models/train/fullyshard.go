package train

import (
	"maps"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/distributed"
)

// fullyShard applies fully_shard to the blocks, then to the model.
func fullyShard(t *trace.Tape, w distributed.World, s *models.Strategy, l Layout) (*Ranks, error) {
	groups, err := groupsOf(s, l)
	if err != nil {
		return nil, err
	}
	o := shardOptions(s)
	o.Beside, o.Manual, o.WarmUp = l.Frozen, s.Name == models.PP, loadsShards(s)
	f, err := distributed.FullyShard(t, w, o, groups)
	if err != nil {
		return nil, err
	}
	r := &Ranks{
		Parameters: f.Parameters(l.names()), Wrappers: map[string]trace.Wrapper{}, sync: f.Sync, each: s.EachSync,
		check: f.Check, finish: f.Finish,
	}
	for _, g := range f.Groups() {
		maps.Copy(r.Wrappers, g.Wrappers())
	}
	if o.Offload { // the host clips and steps
		r.Parameters = nil
	}
	return r, nil
}

// shardOptions returns what the options of a strategy say to fully_shard and FullyShardedDataParallel.
func shardOptions(s *models.Strategy) distributed.Options {
	o := distributed.Options{Replicate: s.Replicate, Offload: s.Offload != "", From: comesFrom[s.Init]}
	switch s.Resharding() {
	case "true":
	case "auto":
		o.Reshard = distributed.ReshardAuto
	case "false", "1": // as PyTorch takes a group of one
		o.Reshard = distributed.ReshardNone
	default:
		o.Among = s.ReshardAmong()
	}
	if s.MP != "" {
		o.ParamType = new(dtypeOf(s.MP))
		o.ReduceType = new(trace.F32) // as MixedPrecisionPolicy(param_dtype, reduce_dtype=torch.float32)
	}
	if s.Reduce != "" {
		o.ReduceType = new(dtypeOf(s.Reduce))
	}
	return o
}

// comesFrom says how shards come to the device from where a model is made.
var comesFrom = map[models.Init]distributed.Source{
	"": distributed.FromMeta, models.InitMeta: distributed.FromMeta, models.InitDevice: distributed.FromDevice,
	models.InitHost:  distributed.FromHost,
	models.InitRank0: distributed.FromRank0,
}

// loadsShards tells whether from_pretrained brings each rank's part to the device.
func loadsShards(s *models.Strategy) bool { return s.TPBy != "" && s.Init == "" }
