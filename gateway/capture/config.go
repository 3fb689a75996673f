package capture

import "time"

// Config says which requests are kept, how many, and where.
type Config struct {
	Off bool `yaml:"off" help:"Keep no requests, and no steps to explain them with."`

	KeptMax   int `yaml:"kept_max" default:"512" range:"16..65536" help:"Requests kept in memory with their steps, at most 50 KB each; four times as many are kept without their steps."`
	StepsKept int `yaml:"steps_kept" default:"32768" range:"1024..1048576" help:"Engine steps kept in memory, about 600 bytes each."`

	Rate          float64 `yaml:"rate" default:"2" range:"0.01..1000" help:"Requests a second of each class that are kept with their steps; of one tenant half as many."`
	Burst         int     `yaml:"burst" default:"20" range:"2..1000" help:"Requests that may be kept at once beyond that rate, of each class."`
	BaselineEvery int     `yaml:"baseline_every" default:"1000" range:"1..1000000000" help:"One in this many requests is kept to compare others with."`

	UsualGroupsMax int `yaml:"usual_groups_max" default:"256" range:"1..65536" help:"Groups of requests of one class and about one size whose usual times are known, to compare a request with; about 5 KB each."`

	WatchdogFactor float64       `yaml:"watchdog_factor" default:"2" range:"1..1000" help:"A running request is kept once it takes this many times as long as a goal of its class."`
	CheckInterval  time.Duration `yaml:"check_interval" default:"1s" range:"10ms..1h" help:"Time between two checks of the running requests."`

	ArmSteps    int           `yaml:"arm_steps" range:"1..4096" help:"Steps whose single kernel launches are recorded after a request that missed a goal, see /debug/launches?after=ID; 0 records none."`
	ArmInterval time.Duration `yaml:"arm_interval" default:"1m" range:"1s.." help:"Shortest time between the beginnings of two such recordings."`

	DiskFolder          string        `yaml:"disk_folder" help:"Folder that kept requests are written to, created if it does not exist; empty writes none."`
	DiskBytesMax        int64         `yaml:"disk_bytes_max" default:"67108864" range:"1MiB..1TiB" help:"Most bytes in that folder; the oldest files are removed first."`
	DiskSegmentBytesMax int64         `yaml:"disk_segment_bytes_max" default:"4194304" range:"64KiB..1GiB" help:"Most bytes of one file in that folder."`
	DiskAgeMax          time.Duration `yaml:"disk_age_max" default:"168h" range:"1m.." help:"Age at which a file in that folder is removed."`
}
