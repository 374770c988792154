import json,subprocess,sys
b=sys.argv[1]; runs=sys.argv[2] if len(sys.argv)>2 else '3'
tot=[0,0]
for t in ('anon-sys-default','anon-vma-policy','shmem-sys-default','shmem-vma-policy'):
    d=json.loads(subprocess.run([b,'reproduce','pft-'+t,'--runs',runs,'-o','json'],capture_output=True,text=True,check=True).stdout)
    cells=d['tables'][0]['cells']
    worst=max(cells,key=lambda c:abs(c['simulated']/c['published']-1))
    by={}
    for c in cells: by.setdefault(c['column'],{})[c['row']]=c
    print(t,'worst %.1f %% %s %s'%(100*(worst['simulated']/worst['published']-1),worst['row'],worst['column']))
    for col in by: print('   ',col,[round(c['simulated']/c['published'],3) for c in by[col].values()])
    cols=list(by)
    for m in ('cpu','wall','s'):
        pass
    # sign pairs: columns come as base/rework
    for a in cols:
        for z in cols:
            if a!=z and 'rework' in z.lower() and a.lower()==z.lower().replace('rework','').strip():
                pass
