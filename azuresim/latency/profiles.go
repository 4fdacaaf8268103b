package latency

import "time"

// ByName returns a built-in profile, realistic or fast.
func ByName(name string) (p *Profile, known bool) {
	switch name {
	case "realistic":
		return Realistic(), true
	case "fast":
		return Fast(), true
	}
	return nil, false
}

// Realistic is what users of Azure report: attach and detach around 10 to 13 s with a tail of up to
// a minute, disks in a few seconds. A forced detach does not wait for the VM, so it has no tail.
// There is no RetryAfter: Azure Compute sends none while an operation is in flight, but with the
// answer that accepts the creation of a disk.
func Realistic() *Profile {
	return &Profile{
		CreateRetryAfter: ms(2000),
		ForeignQuotas:    true,
		Steps: map[Step]Range{
			Request:        {Min: ms(40), Max: ms(120), TailChance: 0.01, TailMax: ms(1500)},
			DiskCreate:     {Min: ms(1500), Max: ms(2500), TailChance: 0.02, TailMax: ms(8000)},
			DiskUpdate:     {Min: ms(1000), Max: ms(2500), TailChance: 0.02, TailMax: ms(8000)},
			DiskDelete:     {Min: ms(800), Max: ms(2000), TailChance: 0.02, TailMax: ms(8000)},
			SnapshotCreate: {Min: ms(1500), Max: ms(3500), TailChance: 0.02, TailMax: ms(12000)},
			SnapshotDelete: {Min: ms(800), Max: ms(2000)},
			BackgroundCopy: {Min: ms(30000), Max: ms(90000)},
			Attach:         {Min: ms(10000), Max: ms(13000), TailChance: 0.03, TailMax: ms(60000)},
			Detach:         {Min: ms(10000), Max: ms(13000), TailChance: 0.03, TailMax: ms(60000)},
			ForceDetach:    {Min: ms(12000), Max: ms(14000)},
			PerDisk:        {Min: ms(100), Max: ms(300)},
			VMCreate:       {Min: ms(20000), Max: ms(40000)},
			VMUpdate:       {Min: ms(2000), Max: ms(4000)},
			VMDelete:       {Min: ms(15000), Max: ms(30000)},
			VMStart:        {Min: ms(15000), Max: ms(30000)},
			VMPowerOff:     {Min: ms(8000), Max: ms(15000)},
			VMDeallocate:   {Min: ms(20000), Max: ms(40000)},
			VMRestart:      {Min: ms(15000), Max: ms(30000)},
			ScaleSet:       {Min: ms(20000), Max: ms(40000)},
		},
	}
}

// Fast is for tests: every operation takes a few milliseconds, so that the order of things is still
// Azure's.
func Fast() *Profile {
	p := &Profile{RetryAfter: Duration(10 * time.Millisecond), Steps: map[Step]Range{}}
	for _, step := range Steps {
		p.Steps[step] = Range{Min: ms(2), Max: ms(8)}
	}
	p.Steps[Request] = Range{}
	p.Steps[PerDisk] = Range{}
	p.Steps[BackgroundCopy] = Range{Min: ms(50), Max: ms(100)}
	return p
}

func ms(n int64) Duration { return Duration(time.Duration(n) * time.Millisecond) }
