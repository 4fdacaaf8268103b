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

// Realistic is Azure as recorded sessions of 2019 to 2026 show it: durations from the documents of
// operations, and the pauses that answers ask for. The ranges have the recorded minimum and median;
// the tails end at the recorded maximum, and are as frequent as it was among so few. README.md
// lists the sources. What is not recorded is marked as an assumption.
func Realistic() *Profile {
	const tail = 0.04
	return &Profile{
		ForeignQuotas:   true,
		SignedURLs:      true,
		UpperCaseGroups: true,
		Pauses: map[string]Pause{
			"disk.create": {Accepted: ms(2000)},
			"vm.create":   {Accepted: ms(10000), FirstPoll: ms(50000)},
			"vm.delete":   {Accepted: ms(10000), FirstPoll: ms(30000)},
			"vm.restart":  {Accepted: ms(10000), FirstPoll: ms(10000)},
			"vmss.put":    {Accepted: ms(10000), FirstPoll: ms(97000)},
			"vmss.delete": {Accepted: ms(10000), FirstPoll: ms(11000)},
			// As long as what is in the group takes.
			"group.delete": {Accepted: ms(15000), FirstPoll: ms(15000)},
			// Assumed to be as for a restart. The reference of attachDetachDataDisks names
			// Retry-After as a header of its 202, and no session with it is known.
			"vm.disks": {Accepted: ms(10000), FirstPoll: ms(10000)},
		},
		Steps: map[Step]Range{
			Request:         {Min: ms(40), Max: ms(120), TailChance: 0.01, TailMax: ms(1500)}, // assumption
			DiskCreate:      {Min: ms(90), Max: ms(300)},                                      // of 15
			UltraDiskCreate: {Min: ms(27300), Max: ms(27500)},                                 // of 3
			DiskUpdate:      {Min: ms(200), Max: ms(1200), TailChance: tail, TailMax: ms(22500)},
			DiskDelete:      {Min: ms(800), Max: ms(2000), TailChance: 0.02, TailMax: ms(8000)},    // assumption
			SnapshotCreate:  {Min: ms(170), Max: ms(1000), TailChance: 0.05, TailMax: ms(3840)},    // of 19
			SnapshotDelete:  {Min: ms(800), Max: ms(2000)},                                         // assumption
			BackgroundCopy:  {Min: ms(30000), Max: ms(90000)},                                      // assumption
			Attach:          {Min: ms(5900), Max: ms(11900), TailChance: tail, TailMax: ms(45500)}, // of 24, by PUT
			// Of 7, by PUT, without a tail. Others have seen tails: the metrics of the V1 driver have
			// a mean of 13.6 s, and detaches of minutes. The tail is assumed to be that of attaches.
			Detach:             {Min: ms(15600), Max: ms(17200), TailChance: tail, TailMax: ms(45500)},
			ForceDetach:        {Min: ms(12000), Max: ms(14000)}, // assumption: no dead host is recorded
			ForceDetachRunning: {Min: ms(450), Max: ms(550)},     // of 1, by PUT
			PerDisk:            {Max: ms(200)},                   // one detach of two disks took 16.0 s
			VMCreate:           {Min: ms(20000), Max: ms(40500)},
			VMUpdate:           {Min: ms(2400), Max: ms(5400)},                                          // of 7
			VMDelete:           {Min: ms(10300), Max: ms(51000), TailChance: 0.2, TailMax: ms(523000)},  // of 9
			VMStart:            {Min: ms(4100), Max: ms(7800)},                                          // of 5
			VMPowerOff:         {Min: ms(4700), Max: ms(11600), TailChance: 0.08, TailMax: ms(13900)},   // of 12
			VMDeallocate:       {Min: ms(19900), Max: ms(51000), TailChance: 0.05, TailMax: ms(714000)}, // of 20
			VMRestart:          {Min: ms(14000), Max: ms(56600)},                                        // of 4
			ScaleSet:           {Min: ms(20000), Max: ms(40000)},                                        // assumption
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
