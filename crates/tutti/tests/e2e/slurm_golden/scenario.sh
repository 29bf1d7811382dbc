#!/bin/sh
# Commands of Slurm with what they print, for Slurm itself (tests/slurm-golden/record) and for the names of Tutti
# (the end-to-end test `slurm_golden`). A cluster of two nodes, n1 and n2, with two processors each runs, this is n1,
# and the directory is empty. Of each command: its label, its words, lines of output (|), of errors (!), exit code (=).
export LC_ALL=C
unset SLURM_TIME_FORMAT SQUEUE_FORMAT SACCT_FORMAT
tmp=$(mktemp -d)
here=$(pwd -P)

# Times, directories and what else differs from run to run have names instead.
plain() {
    sed -E -e 's/[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}/TIME/g' -e 's/ 0:[0-9]{2} / 0:SS /g' -e 's/=00:00:[0-9]{2}/=00:00:SS/g' -e 's/[|]0:[0-9]{2}[|]n/|0:SS|n/' \
        -e "s,$here,WORK,g" -e 's/(TASK_PID|LAUNCHER_PORT|LAUNCH_NODE_IPADDR|SRUN_COMM_PORT|SRUN_COMM_HOST|_(START|END)_TIME)=.*/\1=N/'
}

# say LABEL COMMAND...: runs it, and prints what there is to compare.
say() {
    label=$1
    shift
    printf '\n# %s\n$ %s\n' "$label" "$*"
    "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    code=$?
    plain <"$tmp/out" | sed 's/^/|/; s/$/|/'
    plain <"$tmp/err" | sed 's/^/!/; s/$/!/'
    printf '= %s\n' "$code"
}

# A number of a job is JOB.
numberless() {
    "$@" >"$tmp/numbers"
    code=$?
    sed 's/[0-9][0-9]*/JOB/' "$tmp/numbers"
    return $code
}

# until_state STATE JOB: waits until squeue shows a job in a state.
until_state() {
    tries=0
    while [ "$(squeue -h -t all -j "$2" -o %t 2>/dev/null)" != "$1" ] && [ $tries -lt 300 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
}

# until_file FILE: waits for it.
until_file() {
    tries=0
    while [ ! -s "$1" ] && [ $tries -lt 300 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
}

# Accounting comes a moment later in Slurm.
until_accounted() {
    tries=0
    while [ "$(sacct -n -X -P -j "$2" -o state 2>/dev/null | sed 's/ .*//' | sort -u)" != "$1" ] && [ $tries -lt 300 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
}

printf '#!/bin/sh\ntrue\n' >ok.sh

# --- nodes, partitions, lists
say version-sbatch sbatch --version
say version-srun srun -V
say sinfo sinfo
say sinfo-noheader sinfo -h -p production
say sinfo-nodes sinfo -N -p production
say sinfo-format sinfo -h -o '%P|%a|%l|%D|%t|%N'
say sinfo-format-widths sinfo -p production -o '%.12P %-5a %6D %.6t %N'
say sinfo-short sinfo -s -p production -o '%P %a %l %F %N'
say sinfo-toil sinfo -a -o '%P %G %l %p %c'
say sinfo-conflict sinfo -a -p production
say sinfo-state sinfo -h -t idle -p production -o '%D %T'
say sinfo-none sinfo -h -t drain
say sinfo-reasons sinfo -R -h
say sinfo-no-partition sinfo -h -p nosuch
say sinfo-no-option sinfo --nosuch
say scontrol-ping scontrol ping
say scontrol-version scontrol --version
say show-partition scontrol show partition production
say show-partition-line scontrol -o show partition production
say show-no-partition scontrol show partition nosuch
say show-node scontrol show node n2
say show-no-node scontrol show node nosuch
say hostnames scontrol show hostnames 'a[1-3,7],b'
say hostnames-padded scontrol show hostname 'n[08-11]'
say hostnames-none scontrol show hostnames
say hostlist scontrol show hostlist a1,a2,a3,b7
say hostlist-padded scontrol show hostlist n08,n09,n10
say reservations scontrol show reservation
say no-reservation scontrol show reservation nosuch
say licenses scontrol show licenses
say show-no-jobs scontrol show job
say show-no-job scontrol show job 999
say show-no-steps scontrol show step
say scontrol-nothing scontrol nosuch
say hold-unknown scontrol hold 999
say release-unknown scontrol release 999
say requeue-unknown scontrol requeue 999
say suspend-unknown scontrol suspend 999
say update-unknown scontrol update JobId=999 TimeLimit=5
say update-nothing scontrol update NodeName=nosuch State=RESUME

# --- without jobs
say squeue-empty squeue
say squeue-empty-long squeue -l -h
say squeue-unknown squeue -j 999
say squeue-unknowns squeue -h -j 998,999
say squeue-bad-id squeue -j x
say squeue-bad-state squeue -t nosuch
say squeue-no-user squeue -h -u nosuch
say squeue-no-partition squeue -h -p nosuch
say squeue-no-option squeue --nosuch
say sacct-empty sacct
say sacct-unknown sacct -j 999
say sacct-unknown-parsable sacct -n -P -j 999 -o JobID,State
say sacct-bad-field sacct -o nosuch
say sacct-bad-state sacct -s nosuch
say sacct-no-option sacct --nosuch
say scancel-nothing scancel
say scancel-unknown scancel 999
say scancel-unknown-quiet scancel -Q 999
say scancel-bad-id scancel x
say scancel-no-name scancel -n nosuch --me
say scancel-bad-signal scancel -s NOPE 999
say scancel-no-option scancel --nosuch
say sacctmgr-user sacctmgr -n -s list user root format=account%30
say sstat-unknown sstat -j 999

# --- job 1: a script with two tasks, one on each node
cat >job.sh <<'END'
#!/bin/bash
#SBATCH -J solver -N 2 --ntasks-per-node=1
#SBATCH --time=1:05:00
#SBATCH --output=%x-%j.txt --comment=words
env | grep ^SLURM_ | sort >env.txt
scontrol show hostnames >names.txt
srun -l sh -c 'env | grep ^SLURM_ | sort >step-env.$SLURM_PROCID; echo $SLURM_PROCID of $SLURM_NTASKS' | sort
srun -n 1 -J second sh -c 'exit 5'
echo step ended with $?
echo up >up
while [ ! -e stop ]; do sleep 0.1; done
exit 3
END
say submit sbatch job.sh arg
say listed-at-once squeue -h -j 1 -o '%i|%j|%P|%u|%l|%D|%C'
say accounted-at-once sacct -X -n -P -j 1 -o jobid,jobname
until_file up
say squeue squeue
say squeue-long squeue -l -h
say squeue-parsl squeue --noheader --format='%i %t' --job 1
say squeue-aiida squeue --noheader -o '%i<><> %t<><> %r<><> %u<><> %j' --jobs=1,1
say squeue-reframe squeue -h -j 1 -o '%i|%T|%N|%r'
say squeue-psij squeue -O JobArrayID,StateCompact,Reason -t all --me
say squeue-widths squeue -h -o '%.18i %-9P %.3j %8u %.2t %D %R'
say squeue-all-letters squeue -h -o '%A|%B|%C|%D|%F|%G|%H|%I|%J|%K|%P|%R|%T|%U|%X|%Y|%Z|%c|%d|%f|%g|%h|%i|%j|%k|%l|%n|%o|%q|%r|%t|%u|%x|%y|%z'
say squeue-names squeue -O 'JobID:.8,Name:12,State:10,NumNodes,NumTasks,NumCPUs,TimeLimit,UserName,Partition'
say squeue-headers squeue -j 1 -o '%A|%B|%C|%D|%F|%K|%M|%N|%P|%Q|%R|%S|%T|%U|%V|%Z|%a|%b|%c|%e|%f|%g|%h|%i|%j|%k|%l|%m|%o|%p|%q|%r|%t|%u|%v|%w|%x|%y'
say squeue-nodelist squeue -h -w n2 -o %i
say squeue-user squeue -h -u root -o %i
say squeue-name squeue -h -n solver -o %i
say squeue-steps squeue -s -j 1 -h -o '%i %j %u %N'
say show-job scontrol show job 1
say show-job-line scontrol -o show job 1
say sinfo-mixed sinfo -h -p production -o '%D %t %C'
say sacct-running sacct -X --noheader --format=jobid,state%20 --job 1
say sacct-running-rows sacct -n -P -j 1 -o jobid,jobname,state,exitcode
say job-environment cat env.txt
say job-names cat names.txt
say step-environment cat step-env.1
touch stop
until_state F 1
until_accounted FAILED 1
say job-output cat solver-1.txt
say sacct-default sacct -j 1
say sacct-headers sacct -j 1 -X -P -o JobID,JobIDRaw,JobName,State,ExitCode,DerivedExitCode,NodeList,NNodes,NCPUS,AllocCPUS,Account,User,Partition,QOS,Reason,WorkDir,Comment,Group,UID,Cluster,Timelimit,NTasks,AllocNodes,ReqCPUS,ReqMem,Restarts
say sacct-submitit sacct -o JobID,State,NodeList --parsable2 -j 1
say sacct-parsable sacct -p -X -j 1 -o jobid,state
say sacct-widths sacct -n -X -j 1 -o jobid%-8,jobname%5,state%12
say sacct-name sacct -n -X -P --name solver -o jobidraw
say sacct-state sacct -n -X -P -s F -S 2020-01-01 -E now+1hour -o jobid
say sacct-step sacct -n -P -j 1.1 -o jobid,jobname,state,exitcode,ntasks
say sacct-batch sacct -n -P -j 1.batch -o jobid,state,exitcode
say sacct-reason sacct -n -X -j 1 -o Reason
say squeue-ended squeue -h -t all -j 1 -o '%i %t %T %r %R'
say squeue-ended-not-listed squeue -h
say show-ended scontrol show job 1
say cancel-ended scancel 1
say hold-ended scontrol hold 1

# --- cancelled jobs: 2 runs, 3 is held
say submit-2 sbatch --parsable -o /dev/null --wrap 'sleep 60'
say submit-held sbatch -H -J kept -o /dev/null --wrap 'sleep 60'
until_state R 2
say squeue-held squeue -h -j 3 -o '%i %t %r %R %S %N'
say cancel-verbose scancel -v 2
say cancel-held scancel 3
until_state CA 2
until_state CA 3
until_accounted CANCELLED 2
until_accounted CANCELLED 3
say squeue-cancelled squeue -h -t CA -j 2,3 -o '%i %t %r'
say sacct-cancelled sacct -n -P -j 2,3 -o jobid,state,exitcode

# --- an array, held: 4
say submit-array sbatch --parsable -H -a 0-5%2 -J many -o '%A_%a.txt' --wrap 'echo $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT $SLURM_ARRAY_TASK_MIN $SLURM_ARRAY_TASK_MAX'
say squeue-array squeue -h -j 4 -o '%i|%F|%K|%t|%r'
say squeue-array-lines squeue -h -r -j 4 -o '%i %t'
say sacct-array sacct -n -X -P -j 4 -o jobid,state
say release-array scontrol release 4
until_file 4_5.txt
until_accounted COMPLETED 4
say array-output cat 4_0.txt 4_5.txt
say sacct-array-ended sacct -n -X -P -j 4 -o jobid,state,exitcode
say sacct-element sacct -n -P -j 4_3 -o jobid,jobname,state

# --- dependencies; numbers of jobs are not the same from here on, and $ names them
first=$(sbatch --parsable -H -o /dev/null --wrap true)
second=$(sbatch --parsable -d "afterok:$first" -o /dev/null --wrap true)
third=$(sbatch --parsable -d "after:$first+5" -o /dev/null --wrap true)
say squeue-dependency squeue -h -j "$second" -o '%t %r %R'
say squeue-dependency-letter sh -c "squeue -h -j $second -o %E | sed s/$first/FIRST/"
say show-dependency sh -c "scontrol show job $second | grep -o 'Dependency=[^ ]*' | sed s/$first/FIRST/"
say show-dependency-minutes sh -c "scontrol show job $third | grep -o 'Dependency=[^ ]*' | sed s/$first/FIRST/"
scancel "$first"
until_state CA "$first"
sleep 2
say squeue-never squeue -h -j "$second" -o '%t %r'
scancel "$second" "$third"
later=$(sbatch --parsable --begin=now+1hour -o /dev/null --wrap true)
say squeue-begin squeue -h -j "$later" -o '%t %r'
scancel "$later"

# --- requeue
again=$(sbatch --parsable -J again -o again.txt --open-mode=append --wrap 'echo run ${SLURM_RESTART_COUNT:-none}; touch again.$SLURM_RESTART_COUNT; sleep 60')
until_file again.txt
say requeue scontrol requeuehold "$again"
until_state PD "$again"
say squeue-requeued squeue -h -j "$again" -o '%t %r'
say show-requeued sh -c "scontrol show job $again | grep -o 'Requeue=.*BatchFlag=.'"
scancel "$again"
never=$(sbatch --parsable --no-requeue -o never.txt --wrap 'echo up; sleep 60')
until_file never.txt
say show-no-requeue sh -c "scontrol show job $never | grep -o 'Requeue=.*BatchFlag=.'"
say requeue-never sh -c "scontrol requeue $never 2>&1 | sed s/$never/JOB/"
scancel "$never"
until_state CA "$never"

# --- srun and salloc
say srun srun -n 2 -l sh -c 'sleep 0.$SLURM_PROCID; echo $SLURM_PROCID'
say srun-nodes srun -N 2 -n 2 -l sh -c 'sleep 0.$SLURM_PROCID; echo $SLURM_NODEID $SLURMD_NODENAME'
say srun-exit srun -n 1 sh -c 'exit 4'
say srun-two-exits srun -n 2 sh -c 'exit $((SLURM_PROCID + 4))'
say srun-signal srun -n 1 sh -c 'kill -KILL $$'
say srun-no-program srun -n 1 nosuch
say srun-nothing srun
say srun-no-option srun --nosuch true
say srun-many srun -n 999 true
say srun-test srun --test-only true
say salloc sh -c 'salloc -n 1 sh -c "echo \$SLURM_NTASKS; exit 6" 2>&1 | sed "s/allocation [0-9]*/allocation JOB/; /revoked/d"'
say salloc-exit salloc -Q -n 1 sh -c 'exit 6'
say wait sbatch -Q --wait -o /dev/null --wrap 'exit 7'
say test-only sh -c "sbatch --test-only -n 2 ok.sh 2>&1 | sed 's/Job [0-9]*/Job JOB/; s/on nodes .* in/on nodes LIST in/'"

scancel --me -Q
# --- a node is drained
say drain-no-reason scontrol update NodeName=n2 State=DRAIN
say drain scontrol update NodeName=n2 State=DRAIN Reason=memory
say sinfo-drained sinfo -h -p production -o '%D %t %N' -S N
say sinfo-drained-long sinfo -h -N -n n2 -p production -o '%N %T %E'
say sinfo-drain-reasons sinfo -R -o '%E %N'
say show-drained sh -c "scontrol show node n2 | grep -o 'State=[^ ]*'"
say resume-node scontrol update NodeName=n2 State=RESUME
say sinfo-resumed sinfo -h -p production -o '%D %t'
say update-bad-state scontrol update NodeName=n2 State=NOSUCH

# --- what sbatch rejects; last, since Slurm takes some of it, and numbers of jobs are not the same then
printf 'true\n' >plain.sh
printf '#!/bin/sh\r\ntrue\r\n' >crlf.sh
printf '#!/bin/sh\n#SBATCH --nosuch\ntrue\n' >option.sh
: >empty.sh
mkdir dir
say sbatch-no-file numberless sbatch nosuch.sh
say sbatch-directory numberless sbatch dir
say sbatch-empty numberless sbatch empty.sh
say sbatch-plain numberless sbatch plain.sh
say sbatch-crlf numberless sbatch crlf.sh
say sbatch-line numberless sbatch option.sh
say sbatch-no-option numberless sbatch --nosuch ok.sh
say sbatch-tasks numberless sbatch -n x ok.sh
say sbatch-no-tasks numberless sbatch -n 0 ok.sh
say sbatch-time numberless sbatch -t soon ok.sh
say sbatch-memory numberless sbatch --mem=x ok.sh
say sbatch-many-nodes numberless sbatch -N 9 ok.sh
say sbatch-many-tasks numberless sbatch -n 999 ok.sh
say sbatch-many-processors numberless sbatch -c 99 ok.sh
say sbatch-no-node numberless sbatch -w nosuch ok.sh
say sbatch-no-partition numberless sbatch -p nosuch ok.sh
say sbatch-dependency numberless sbatch -d afterok:999 ok.sh
say sbatch-dependency-word numberless sbatch -d nosuch:1 ok.sh
say sbatch-array numberless sbatch --array=3-1 ok.sh
say sbatch-array-word numberless sbatch --array=x ok.sh
say sbatch-signal numberless sbatch --signal=NOPE@3 ok.sh
say sbatch-begin numberless sbatch --begin=soon ok.sh
scancel --me -Q
rm -rf "$tmp"
